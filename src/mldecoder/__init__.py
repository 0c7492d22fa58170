"""ML-Decoder: an attention-based classification head, and everything around it.

Names are imported when they are first used, so that ``mldecoder --help`` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from mldecoder import convert as convert
    from mldecoder import losses as losses
    from mldecoder import metrics as metrics
    from mldecoder import text as text
    from mldecoder.backbones import list_backbones as list_backbones
    from mldecoder.calibration import calibrate as calibrate
    from mldecoder.explain import Explainer as Explainer
    from mldecoder.explain import Explanation as Explanation
    from mldecoder.export import export_model as export_model
    from mldecoder.heads import GlobalAveragePool as GlobalAveragePool
    from mldecoder.heads import GroupLinear as GroupLinear
    from mldecoder.heads import MLDecoder as MLDecoder
    from mldecoder.heads import TransformerDecoder as TransformerDecoder
    from mldecoder.heads import ZeroShotMLDecoder as ZeroShotMLDecoder
    from mldecoder.model import Classifier as Classifier
    from mldecoder.model import create_model as create_model
    from mldecoder.model import load as load
    from mldecoder.model import replace_head as replace_head
    from mldecoder.predict import Picture as Picture
    from mldecoder.predict import PictureOrMany as PictureOrMany
    from mldecoder.predict import Prediction as Prediction
    from mldecoder.predict import Predictor as Predictor
    from mldecoder.training import evaluate as evaluate
    from mldecoder.training import train as train

_HOMES = {
    "Classifier": "mldecoder.model",
    "Explainer": "mldecoder.explain",
    "Explanation": "mldecoder.explain",
    "GlobalAveragePool": "mldecoder.heads",
    "GroupLinear": "mldecoder.heads",
    "MLDecoder": "mldecoder.heads",
    "Picture": "mldecoder.predict",
    "PictureOrMany": "mldecoder.predict",
    "Prediction": "mldecoder.predict",
    "Predictor": "mldecoder.predict",
    "TransformerDecoder": "mldecoder.heads",
    "ZeroShotMLDecoder": "mldecoder.heads",
    "calibrate": "mldecoder.calibration",
    "create_model": "mldecoder.model",
    "evaluate": "mldecoder.training",
    "export_model": "mldecoder.export",
    "list_backbones": "mldecoder.backbones",
    "load": "mldecoder.model",
    "replace_head": "mldecoder.model",
    "train": "mldecoder.training",
}
_MODULES = {"convert", "losses", "metrics", "text"}

__all__ = [
    "Classifier",
    "Explainer",
    "Explanation",
    "GlobalAveragePool",
    "GroupLinear",
    "MLDecoder",
    "Picture",
    "PictureOrMany",
    "Prediction",
    "Predictor",
    "TransformerDecoder",
    "ZeroShotMLDecoder",
    "calibrate",
    "convert",
    "create_model",
    "evaluate",
    "export_model",
    "list_backbones",
    "load",
    "losses",
    "metrics",
    "replace_head",
    "text",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"mldecoder.{name}")
    raise AttributeError(f"module 'mldecoder' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
