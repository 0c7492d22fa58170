"""What a classifier is made of: labels, a head and, where it asks by words, the words."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from mldecoder.config import HEAD_CONFIGS, HeadSection, MLDecoderConfig, ZeroShotConfig, describe_head, parse
from mldecoder.errors import ConfigError
from mldecoder.label_words import AnyText, LabelWords
from mldecoder.model.label_queries import build_from_words

__all__ = ["Head", "build_head", "head_config", "names_of"]

Head = str | Mapping[str, Any] | HeadSection | nn.Module


def build_head(
    head: Head, labels: tuple[str, ...], num_features: int, text: AnyText | None, unseen: Sequence[str] = ()
) -> tuple[nn.Module, HeadSection, LabelWords | None]:
    """A head, its config and, where it asks by words, the words."""
    section = describe_head(head) if isinstance(head, nn.Module) else head_config(head)
    words = None
    if isinstance(section, ZeroShotConfig):
        words = LabelWords.encoded(labels, text, unseen)
        width = words.vectors.shape[1]
        if section.text_width not in (None, width):
            raise ConfigError(
                f"The head takes text vectors of {section.text_width} numbers, {words.config.encoder} gives {width}. "
                f"Leave head.text_width out, or name another text.encoder."
            )
        section = section.model_copy(update={"text_width": width})
    elif isinstance(section, MLDecoderConfig) and section.asks_by_words:
        vectors = LabelWords.encoded(labels, text).vectors
        return *build_from_words(section, vectors, num_features), None
    elif text is not None:
        raise ConfigError('text is for the zero-shot head. Pass head="zero-shot" with it.')
    module = head if isinstance(head, nn.Module) else section.build(len(labels), num_features)
    return module, section, words


def names_of(labels: Sequence[str] | int | None) -> tuple[str, ...]:
    """The labels, checked; a number of classes gets names."""
    if labels is None:
        raise ConfigError("Say what to score: num_classes=80, or labels=[...].")
    if isinstance(labels, int):
        if labels < 1:
            raise ConfigError(f"num_classes must be at least 1, got {labels}.")
        return tuple(f"class {i}" for i in range(labels))
    names = tuple(labels)
    if not names:
        raise ConfigError("labels must name at least one class, got none.")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ConfigError(f"labels must differ from each other, got {twice!r} twice.")
    return names


def head_config(head: Head) -> HeadSection:
    """The config of a head that is named or described."""
    if isinstance(head, HeadSection):
        return head
    data = {"kind": head} if isinstance(head, str) else dict(head) if isinstance(head, Mapping) else {}
    kind = data.get("kind", "ml-decoder")
    if kind not in HEAD_CONFIGS:
        raise ConfigError(f"head must be one of {', '.join(HEAD_CONFIGS)}, got {kind!r}.")
    return parse(HEAD_CONFIGS[kind], data, "head")
