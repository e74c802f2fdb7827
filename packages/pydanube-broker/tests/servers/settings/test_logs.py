"""The formats of the log."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pydanube_broker.servers.settings.config import LogConfig
from pydanube_broker.servers.settings.logs import configure_logging
from support.drivers.commands import logging_restored

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("pydanube.test")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    with logging_restored():
        yield


def written(config: LogConfig) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(config, stream)
    return stream


def test_json_has_one_object_a_line_with_the_extra_fields() -> None:
    stream = written(LogConfig(format="json"))
    log.info("sealed %s", "/default/a", extra={"topic": "/default/a", "end": 7})
    log.warning("again", extra={"path": io})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "sealed /default/a"
    assert (first["level"], first["logger"]) == ("info", "pydanube.test")
    assert (first["topic"], first["end"]) == ("/default/a", 7)
    assert first["timestamp"].endswith("Z")
    assert second["path"] == str(io)


def test_text_is_one_readable_line_without_colours_in_a_file() -> None:
    stream = written(LogConfig())
    log.info("sealed", extra={"topic": "/default/a"})
    (line,) = stream.getvalue().splitlines()
    assert "sealed" in line
    assert "topic=/default/a" in line
    assert "\x1b" not in line


@pytest.mark.parametrize("kind", ["text", "json"])
def test_exception_comes_with_its_traceback(kind: str) -> None:
    stream = written(LogConfig(format=kind))
    try:
        int("of its own")
    except ValueError:
        log.exception("topic failed")
    assert "of its own" in stream.getvalue()
    assert "test_logs.py" in stream.getvalue()


def test_lines_below_the_level_are_dropped() -> None:
    stream = written(LogConfig(level="warning"))
    log.info("not this")
    log.warning("this")
    assert "not this" not in stream.getvalue()
    assert "this" in stream.getvalue()


def test_configuring_again_replaces_the_configuration() -> None:
    first = written(LogConfig())
    second = written(LogConfig())
    log.warning("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


LOADED = """
import sys
from pydanube_broker.servers.settings.config import LogConfig
from pydanube_broker.servers.settings.logs import configure_logging
configure_logging(LogConfig())
print([name for name in sys.modules if name.startswith("rich")])
import rich.console
"""


def test_log_does_not_import_what_draws_tracebacks() -> None:
    pytest.importorskip("rich")
    done = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
