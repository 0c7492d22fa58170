"""How far it is and how fast it goes: a live line on a terminal, a plain one every half minute elsewhere."""

import time

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

__all__ = ["Meter"]


class Meter:
    """Counts things whose number is not known in advance.

    Args:
        what: What is counted, such as "pictures".
        console: Where to say it.
    """

    def __init__(self, what: str, console: Console) -> None:
        self.what, self.console = what, console
        self._line = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True, disable=not self._live
        )
        self._task = self._line.add_task("", total=None)
        self._start = self._said = time.monotonic()
        self._done = 0

    def __enter__(self) -> "Meter":
        self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._line.stop()

    def more(self, count: int) -> None:
        """Say that so many came on top."""
        self._done += count
        self.advance(self._done)

    def advance(self, done: int, broken: int = 0) -> None:
        """Say how many there are so far."""
        now = time.monotonic()
        text = f"{done:,} {self.what}, {done / max(now - self._start, 1e-9):.3g} a second"
        text += f", {broken:,} broken" if broken else ""
        if self._live:
            self._line.update(self._task, description=text)
        elif now - self._said > 30:
            self._said = now
            self.console.print(text, highlight=False)

    @property
    def _live(self) -> bool:
        return self.console.is_terminal
