"""
The format of the broker's log.

All code logs through the standard library, with ids as ``extra`` fields, so lines of
libraries have the same format.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from pydanube_broker.servers.settings.config import LogConfig


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
