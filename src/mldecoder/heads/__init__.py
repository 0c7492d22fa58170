"""Classification heads: features of a backbone in, one logit a class out. Torch only."""

from mldecoder.heads.average_pool import GlobalAveragePool as GlobalAveragePool
from mldecoder.heads.layers import GroupLinear as GroupLinear
from mldecoder.heads.ml_decoder import MLDecoder as MLDecoder
from mldecoder.heads.plus import MLDecoderPlus as MLDecoderPlus
from mldecoder.heads.resize import with_classes as with_classes
from mldecoder.heads.transformer_decoder import TransformerDecoder as TransformerDecoder
from mldecoder.heads.zero_shot import ZeroShotMLDecoder as ZeroShotMLDecoder
