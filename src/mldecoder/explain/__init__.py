"""Where a model looked, and whether that is where the answer came from."""

from mldecoder.explain.explainer import Explainer as Explainer
from mldecoder.explain.explanation import Explanation as Explanation
from mldecoder.explain.explanation import LabelMap as LabelMap
from mldecoder.explain.hiding import Faithfulness as Faithfulness
from mldecoder.explain.hiding import faithfulness as faithfulness
