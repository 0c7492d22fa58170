"""From data and a recipe to a trained, evaluated, resumable run."""

from mldecoder.training.api import Run as Run
from mldecoder.training.api import evaluate as evaluate
from mldecoder.training.api import train as train
