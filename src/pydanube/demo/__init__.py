"""
A demonstration of pydanube with real input and a proof.

``run()`` starts a broker, publishes telemetry and source code of this machine, writes
both into Delta tables with Spark, and checks that nothing was lost or duplicated.
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
    Run the demo and return its exit code.

    Args:
        directory: The new or empty directory for broker, checkpoints and tables; None
            uses a temporary one.
        output: The directory for the chart and the logs; None is ``demo-output``.
        seconds: How long the query over this machine's telemetry runs.
        small: Publish only a part of the standard library, for tests.
        console: The console for the output.

    Returns:
        0 if all checks passed, 1 if one failed, 2 if something that the demo needs is
        missing or did not start, 130 if it was interrupted.
    """
    from rich.console import Console  # noqa: PLC0415

    console = console or Console()
    try:
        from pydanube.demo.scenario import run_demo  # noqa: PLC0415  # Needs the extra.
    except ModuleNotFoundError as missing:
        console.print(
            f"The demo needs the package {missing.name}, which comes with "
            "\"pip install 'pydanube[demo]'\".",
            style="red",
            markup=False,
        )
        return 2
    return run_demo(directory, output, console, seconds=seconds, small=small)


__all__ = ["run"]
