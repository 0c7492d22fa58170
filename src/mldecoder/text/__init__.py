"""Label names to vectors, behind one small interface and a dict of names."""

from mldecoder.text.cache import cache_folder as cache_folder
from mldecoder.text.descriptions import read_descriptions as read_descriptions
from mldecoder.text.encoders import ENCODERS as ENCODERS
from mldecoder.text.encoders import AnyEncoder as AnyEncoder
from mldecoder.text.encoders import TextEncoder as TextEncoder
from mldecoder.text.encoders import encoder as encoder
from mldecoder.text.encoders import parts as parts
from mldecoder.text.labels import encode_labels as encode_labels
from mldecoder.text.labels import explain_labels as explain_labels
from mldecoder.text.lookup import OOV as OOV
from mldecoder.text.lookup import WordEncoder as WordEncoder
from mldecoder.text.vectors import WordTable as WordTable
from mldecoder.text.vectors import read_words as read_words
