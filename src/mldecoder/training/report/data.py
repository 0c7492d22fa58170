"""What a report is made from.

Shapes: n pictures of the validation part, k labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from mldecoder.data.dataset import ImageSet, Task
from mldecoder.errors import InputError
from mldecoder.metrics.average_precision import check_scores

__all__ = ["History", "ReportData"]

History = Sequence[Mapping[str, float]]
"""One entry an epoch: epoch, loss, lr, seconds, images_per_second, and validation metrics in percent."""


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything that a report shows.

    Args:
        title: What the run is called, as in "scenes, ML-Decoder".
        task: Whether a picture has one label or any number of them.
        labels: The k labels.
        settings: The resolved recipe as nested mappings.
        history: One entry an epoch, with whatever was measured.
        metrics: The final figures in percent.
        scores: Probabilities on the validation part (n, k).
        targets: 1, 0, or -1 for unknown (n, k).
        validation: The pictures that the rows of ``scores`` belong to.
        notes: Warnings worth showing.
        compare: Histories of other runs by name.
        unseen: Those of the labels that were never trained.
    """

    title: str
    task: Task
    labels: tuple[str, ...]
    settings: Mapping[str, object]
    history: History
    metrics: Mapping[str, float]
    scores: Tensor
    targets: Tensor
    validation: ImageSet
    notes: Sequence[str] = ()
    compare: Mapping[str, History] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_scores(self.scores, self.targets)
        n, k = self.scores.shape
        if len(self.labels) != k:
            raise InputError(f"labels must name the {k} classes of the scores, got {len(self.labels)} names.")
        if len(self.validation) != n:
            raise InputError(
                f"validation must hold the {n} pictures of the scores, got {len(self.validation)}. "
                "Use validation.select(indices) to leave out pictures that were skipped."
            )
        if self.scores.isnan().any():
            raise InputError("scores must be numbers, got NaN. Did training diverge?")

    @property
    def main_metric(self) -> str:
        """The figure by which runs of this task are compared."""
        usual = "mAP" if self.task == "multi-label" else "top1"
        if self.unseen:  # weights are never chosen by what the unseen labels have a part in
            usual = "seen_mAP"
        return usual if usual in self.metrics else next(iter(self.metrics), usual)
