"""Broken pictures of a run: named when they are met, known to all processes, too many of them end it."""

from collections.abc import Mapping, Sequence

from accelerate import Accelerator
from accelerate.utils import gather_object

from mldecoder.data.dataset import ImageSet
from mldecoder.data.images import BrokenLog, why_broken
from mldecoder.training.console import Display
from mldecoder.training.loading import Batch, note_broken

__all__ = ["BrokenPictures"]


class BrokenPictures:
    """Those of the training part and those of the validation part, each with the same limit.

    Args:
        train: Pictures to learn from.
        val: Pictures to validate on.
        limit: How many may be broken in each part: a number, or a fraction when a float below 1.
        accelerator: The processes.
        display: What the person sees.
    """

    def __init__(
        self, train: ImageSet, val: ImageSet, limit: int | float, accelerator: Accelerator, display: Display
    ) -> None:
        self.train, self.accelerator, self.display = train, accelerator, display
        self.trained, self.validated = BrokenLog(limit, total=len(train)), BrokenLog(limit, total=len(val))

    def note(self, batch: Batch) -> None:
        """Those of a training batch."""
        self._say(note_broken(batch, self.train, self.trained))

    def note_validation(self, reasons: Mapping[str, str]) -> None:
        """Those that an evaluation met."""
        self._say(self.validated.add_all(reasons))

    def share(self, unread: Sequence[int] = ()) -> None:
        """Tell all processes of the training part's, after a look at pictures that were not read yet.

        A run that is to end for too many broken pictures then ends here and not epochs later.
        """
        reasons = {self.train.pictures.name(i): why_broken(self.train, i) for i in unread}
        self._say(self.trained.add_all({name: reason for name, reason in reasons.items() if reason}))
        if self.accelerator.num_processes > 1:
            for theirs in gather_object([self.trained.reasons]):
                self._say(self.trained.add_all(theirs))

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            self.display.say(line)
