"""One adapter a library: from a name to a module that yields a map or tokens."""

from mldecoder.backbones.base import Backbone as Backbone
from mldecoder.backbones.base import Preprocessing as Preprocessing
from mldecoder.backbones.create import create_backbone as create_backbone
from mldecoder.backbones.create import list_backbones as list_backbones
from mldecoder.backbones.create import wrap_backbone as wrap_backbone
