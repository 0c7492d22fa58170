"""The page to try a model on: tags as bars, where the model looked, own words. Nothing leaves the machine."""

from mldecoder.web.answer import Answer as Answer
from mldecoder.web.answer import Answerer as Answerer
