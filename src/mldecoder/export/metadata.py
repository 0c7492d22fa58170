"""What a file says about itself: labels, thresholds, and how a picture is prepared."""

import json
from typing import Any

from mldecoder import __version__
from mldecoder.export.options import Options
from mldecoder.model import Classifier

__all__ = ["KEY", "dump", "metadata"]

KEY = "mldecoder"  # under which the text stands, in every format


def metadata(model: Classifier, options: Options, *, size: tuple[int, int], any_size: bool) -> dict[str, Any]:
    """Everything a program without this package needs to tag pictures with the file."""
    config = model.config
    single = config.task == "single-label"
    return {
        "schema_version": 1,
        "mldecoder": __version__,
        "backbone": config.backbone.name,
        "head": config.head.kind,
        "task": config.task,
        "labels": list(model.labels),
        "thresholds": None if single else [round(float(x), 6) for x in model.thresholds_for(model.labels)],
        "output": "probabilities" if options.probabilities else "logits",
        "temperature": config.temperature or 1.0,
        "bias": config.bias or 0.0,
        "input": "uint8 NHWC" if options.preprocessing else "float32 NCHW",
        "preprocessing": config.preprocessing.model_dump(mode="json") | {"size": list(size)},
        "any_size": any_size,
        "precision": options.precision,
        "text_encoder": None if config.text is None else config.text.encoder,
    }


def dump(data: dict[str, Any]) -> str:
    """The text that is put into the file."""
    return json.dumps(data, ensure_ascii=False)
