"""The OpenAPI description as a page that needs nothing from elsewhere."""

from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["page_of"]

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "h2{margin:2rem 0 0;font-size:1.1rem}code,pre{background:#f2f2f2;padding:.1rem .3rem}"
    "pre{padding:.6rem;overflow:auto}"
    "td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}code,pre{background:#2a2a2a}a{color:#8bf}}"
)
_EXAMPLE = "curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' http://127.0.0.1:8000/predict"


def page_of(description: Mapping[str, Any]) -> str:
    """HTML for people, from what ``/openapi.json`` says to programs."""
    about = description["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(about['title'])}</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style><h1>{escape(about['title'])}</h1>"
        f"<p>{escape(about.get('description', ''))} The same for programs: <a href=openapi.json>openapi.json</a>.</p>"
        f"<pre>{escape(_EXAMPLE)}</pre>"
    ]
    for path, methods in description["paths"].items():
        for method, its in methods.items():
            rows = [
                f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one.get('description', ''))}"
                for one in its.get("parameters", [])
            ] + [
                f"<tr><td><code>{escape(status)}</code><td>{escape(one['description'])}"
                for status, one in its["responses"].items()
            ]
            parts.append(
                f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p>{escape(its['summary'])}. "
                f"{escape(its.get('description', ''))}</p><table>{''.join(rows)}</table>"
            )
    return "".join(parts)
