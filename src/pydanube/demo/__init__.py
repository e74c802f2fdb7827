"""
The main job of pydanube, shown with real input and with proof.

``run()`` starts a broker, publishes what this machine has to tell, lets Spark
turn it into Delta tables, and checks that nothing was lost or duplicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


def run(
    *,
    directory: Path | None = None,
    output: Path | None = None,
    seconds: float = 20.0,
    small: bool = False,
    console: Console | None = None,
) -> int:
    """
    Show and prove the main job; return the exit code for it.

    Args:
        directory: Where broker, checkpoints and tables are kept, new or empty; None
            takes a temporary one and removes it at the end.
        output: Where the chart and the logs go; None is ``demo-output`` here.
        seconds: How long the query over this machine's telemetry runs live.
        small: Publish only a part of the standard library, for tests.
        console: Where to show it.

    Returns:
        0 if everything was proven, 1 if a proof failed, 2 if something that the
        demo needs is missing or did not start, 130 if it was interrupted.
    """
    from rich.console import Console  # noqa: PLC0415

    console = console or Console()
    try:
        from pydanube.demo.story import tell  # noqa: PLC0415  # Needs the extra.
    except ModuleNotFoundError as missing:
        console.print(
            f"The demo needs the package {missing.name}, which comes with "
            "\"pip install 'pydanube[demo]'\".",
            style="red",
            markup=False,
        )
        return 2
    return tell(
        directory=directory,
        output=output,
        seconds=seconds,
        small=small,
        console=console,
    )


__all__ = ["run"]
