"""What a person sees while a model trains: a live bar on a terminal, plain lines elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Display"]


class Display:
    """Progress of a run; silent in all processes but the first.

    Args:
        enabled: Whether to show anything.
        console: Where; the terminal by default.
    """

    def __init__(self, enabled: bool = True, console: Console | None = None) -> None:
        self.enabled = enabled
        self.console = console or Console(soft_wrap=True, highlight=False)
        self.live = enabled and self.console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self._said = time.monotonic()

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if self.enabled:
            self.console.print(line, markup=False)

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Start counting something."""
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task(what, total=total, completed=done, note="")
        self._what, self._total = what, total

    def advance(self, done: int, note: str = "") -> None:
        """Say how far it is; off the terminal a line every half minute."""
        if self.live:
            self._bar.update(self._bar.task_ids[0], completed=done, note=note)
        elif self.enabled and time.monotonic() - self._said > 30:
            self._said = time.monotonic()
            self.say(f"{self._what}: {done}/{self._total} {note}")
