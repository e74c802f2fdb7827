"""Every failure is a line and an exit code, never a traceback."""

import pytest
import typer

from pydanube.model.errors import (
    ERRORS,
    BrokerError,
    ConnectionLost,
    DirectoryLocked,
    InvalidConfig,
    TopicNotFound,
)
from pydanube_cli.invocation.error_report import HINTS, exit_on_error, format_error
from pydanube_cli.invocation.interruption import Interrupted


def fail_with(error, **options):
    with pytest.raises(typer.Exit) as exited, exit_on_error(**options):
        raise error
    return exited.value.exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerError("x"), 1),
        (InvalidConfig("x"), 2),
        (TopicNotFound("x"), 3),
        (DirectoryLocked("x"), 4),
        (ConnectionLost("x"), 8),
        (TimeoutError(), 9),
        (FileNotFoundError(2, "No such file or directory", "orders.jsonl"), 1),
        (KeyboardInterrupt(), 130),
        (Interrupted(15), 143),
    ],
)
def test_an_error_ends_a_command_with_its_exit_code(error, code):
    assert fail_with(error) == code


def test_error_is_one_line(capsys):
    fail_with(DirectoryLocked("the data directory\nis in use"))
    assert capsys.readouterr().err == "error: the data directory is in use\n"


def test_hint_follows_the_error(capsys):
    fail_with(TopicNotFound("there is no topic /default/orders"))
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: there is no topic /default/orders"
    assert hint.startswith("hint: ")


def test_error_names_the_file(capsys):
    fail_with(FileNotFoundError(2, "No such file or directory", "orders.jsonl"))
    assert capsys.readouterr().err == "error: orders.jsonl: No such file or directory\n"


def test_debugging_shows_the_traceback_as_well(capsys):
    assert fail_with(TopicNotFound("gone"), is_debugging=True) == 3
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "error: gone" in said


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), exit_on_error():
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", ERRORS.values(), ids=lambda kind: kind.__name__)
def test_every_error_can_be_described(kind):
    assert format_error(kind("said")).startswith("error: said\n")
    assert format_error(kind()).startswith("error: ")


def test_hints_are_for_errors_that_exist():
    assert set(HINTS) <= set(ERRORS.values())
