"""
The functions of a pipeline.

Spark's workers cannot import a file beside the pipeline, so its definitions are sent to
them by value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydanube.declarations import functions


def load_function(text: str, directory: Path) -> Callable[..., Any]:
    """
    Import the function that *text* names, and let Spark send its definitions.

    Raises:
        NoSuchFunction: *text* is malformed, the import fails, or the function is
            missing.
    """
    before = set(sys.modules)
    found = functions.load_function(text, directory)
    if text.rpartition(":")[0].endswith(".py"):
        _send_by_value(directory, before)
    return found


def _send_by_value(directory: Path, before: set[str]) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415  # It takes a while.

    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(directory.resolve()):
            cloudpickle.register_pickle_by_value(sys.modules[name])
