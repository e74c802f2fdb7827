"""A line of progress on the terminal, while a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_line(
    text: str, *, is_shown: bool, has_rate: bool = False
) -> Iterator[Callable[[str, int], None]]:
    """Yield a function that shows a text and, with *has_rate*, the rate of a count."""
    if not is_shown:
        yield lambda _text, _count: None
        return
    from rich.console import Console  # noqa: PLC0415  # It takes a while.
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    columns = SpinnerColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)

        def show(text: str, count: int) -> None:
            speed = progress.tasks[0].speed if has_rate else None
            rate = f"  {speed:,.0f} messages/s" if speed else ""
            progress.update(task, completed=count, description=text + rate)

        yield show
