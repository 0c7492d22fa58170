"""A classifier is a backbone, a head, labels and preprocessing: made, changed, saved and loaded here."""

from mldecoder.model.classifier import Classifier as Classifier
from mldecoder.model.create import create_model as create_model
from mldecoder.model.create import join as join
from mldecoder.model.create import load as load
from mldecoder.model.create import replace_head as replace_head
from mldecoder.model.parts import Head as Head
