"""HTML that cannot be forgotten to be escaped: a plain string is text, only ``Html`` is markup."""

import html
from collections.abc import Sequence

__all__ = ["Html", "join", "name", "tag"]

_VOID = {"br", "col", "img", "input", "link", "meta", "line", "rect", "path", "circle"}


class Html(str):
    """A string that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """Make an element; children that are not ``Html`` are escaped.

    Attribute names are written as in Python: ``class_="num"``, ``stroke_width=2``, ``aria_label="..."``. An
    attribute that is None is left away.

    Example:
        >>> tag("b", "<script>", class_="label")
        '<b class="label">&lt;script&gt;</b>'
    """
    given = {_name(key): _text(value) for key, value in attributes.items() if value is not None}
    opening = name + "".join(f' {key}="{html.escape(value)}"' for key, value in given.items())
    if name in _VOID:
        return Html(f"<{opening}/>")  # an SVG element must be closed, and HTML does not mind
    return Html(f"<{opening}>{join(children)}</{name}>")


def join(children: Sequence[str]) -> Html:
    """Set markup and texts one after the other."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def name(text: str) -> Html:
    """A label or file name: of any direction of writing, and broken after ``_`` and ``/`` where it is too long."""
    return tag("bdi", Html(html.escape(text).replace("_", "_<wbr>").replace("/", "/<wbr>")), class_="label")


def _name(key: str) -> str:
    return key if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(float(value), 2):g}"
