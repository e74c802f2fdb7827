"""The last lines of connectors are kept, each for itself and without secrets."""

import logging

import pytest

from pydanube_connect.run_log import (
    LINE_CHARACTERS_MAX,
    LINES_MAX,
    RunLog,
    current_connector,
)


@pytest.fixture
def logger():
    found = logging.getLogger("tests.connectors")
    found.kept = RunLog({"a": lambda text: text.replace("word", "***"), "b": str})
    found.addFilter(found.kept)
    yield found
    found.removeFilter(found.kept)


def log_as(logger, name, text):
    token = current_connector.set(name)
    try:
        logger.warning("%s", text)
    finally:
        current_connector.reset(token)


def test_each_connector_has_its_lines(logger):
    log_as(logger, "a", "the word is secret")
    log_as(logger, "b", "the word is public")
    log_as(logger, "unknown", "lost")
    logger.warning("of no connector")
    [line] = logger.kept.lines_of("a")
    assert (line.number, line.level, line.text) == (1, "warning", "the *** is secret")
    [line] = logger.kept.lines_of("b")
    assert line.text == "the word is public"


def test_lines_go_where_they_went(logger, caplog):
    log_as(logger, "a", "the word")
    assert caplog.messages == ["the word"]
    logger.kept.add("a", "running")
    assert caplog.messages == ["the word"]
    assert [each.level for each in logger.kept.lines_of("a")] == ["warning", "info"]


def test_the_last_lines_are_kept(logger):
    for number in range(LINES_MAX + 5):
        log_as(logger, "a", str(number))
    found = logger.kept.lines_of("a")
    assert [each.text for each in found] == [*map(str, range(5, LINES_MAX + 5))]
    assert [each.text for each in logger.kept.lines_of("a", LINES_MAX + 3)] == [
        str(LINES_MAX + 3),
        str(LINES_MAX + 4),
    ]


def test_long_lines_are_cut(logger):
    log_as(logger, "a", "x" * 10_000)
    [line] = logger.kept.lines_of("a")
    assert len(line.text) == LINE_CHARACTERS_MAX
