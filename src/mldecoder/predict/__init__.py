"""Tags for pictures: one, a list, or a folder tree of any size."""

from mldecoder.predict.inputs import Picture as Picture
from mldecoder.predict.inputs import PictureOrMany as PictureOrMany
from mldecoder.predict.inputs import Source as Source
from mldecoder.predict.prediction import Prediction as Prediction
from mldecoder.predict.prediction import Tag as Tag
from mldecoder.predict.predictor import Predictor as Predictor
