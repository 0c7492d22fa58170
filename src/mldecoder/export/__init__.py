"""A trained model as one file for other runtimes: ONNX, a torch program, or OpenVINO; every file is checked."""

from mldecoder.export.api import Exported as Exported
from mldecoder.export.api import export_model as export_model
from mldecoder.export.options import Format as Format
from mldecoder.export.options import Precision as Precision
