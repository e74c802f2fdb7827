"""
The format of the broker's log.

All code logs through the standard library, with ids as ``extra`` fields, so lines of
libraries have the same format.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from pydanube_broker.servers.settings.config import LogConfig

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor


def configure_logging(
    config: LogConfig, stream: TextIO | None = None, *, process: int | None = None
) -> None:
    """
    Send every log line of the process to *stream*, standard error by default.

    With *process*, each line has this number of one of the broker's processes.

    Replaces the previous logging configuration, so that it may be called again.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(config, stream, process))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(config.level.upper())


def _formatter(
    config: LogConfig, stream: TextIO, process: int | None
) -> logging.Formatter:
    with _without("rich"):
        import structlog  # noqa: PLC0415  # It would import rich.
    renderers: list[Processor]

    def add_process(_: Any, __: str, fields: EventDict) -> EventDict:
        if process is not None:
            fields["process"] = process
        return fields

    if config.format == "json":
        renderers = [
            structlog.processors.dict_tracebacks,
            # Values that JSON cannot represent are written as text.
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        renderers = [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    return structlog.stdlib.ProcessorFormatter(
        # Applied to lines of the standard library, which are all lines.
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            add_process,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *renderers,
        ],
    )


@contextmanager
def _without(package: str) -> Iterator[None]:
    """
    Let imports in the body find that *package* is not installed.

    structlog imports rich if it can, for tracebacks that the broker does not write.
    This takes 4 MB, and a twentieth of the time of starting a broker.
    """
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]
    known = modules.get(package)
    modules[package] = None
    try:
        yield
    finally:
        del modules[package]
        if known is not None:
            modules[package] = known
