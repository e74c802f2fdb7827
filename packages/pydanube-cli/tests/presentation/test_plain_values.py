"""Values that need no conversion are passed on; Typer converts the others."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from pydanube_cli.presentation.help_pages import HelpfulCommand
from pydanube_cli.presentation.plain_values import plain_value, simple_value


class Color(Enum):
    RED = "red"


def run(*arguments):
    app = typer.Typer()
    seen = {}

    @app.command(cls=HelpfulCommand)
    def paint(
        name: str,
        color: Color = Color.RED,
        count: int = typer.Option(2, min=1),
        tag: list[str] | None = None,
        file: Path | None = None,
        place: Annotated[Path | None, typer.Option(exists=True)] = None,
        size: int = 1,
        code: str = typer.Option("x", parser=str.upper),
        dry: bool = False,
    ):
        seen.update(locals())

    return CliRunner().invoke(app, list(arguments)), seen


def test_defaults_are_passed_on():
    result, seen = run("wall")
    assert result.exit_code == 0, result.output
    assert (seen["name"], seen["color"], seen["count"]) == ("wall", Color.RED, 2)
    assert not seen["tag"]
    assert (seen["file"], seen["dry"]) == (None, False)


def test_given_values_are_converted():
    result, seen = run(
        *("wall", "--color", "red", "--count", "3", "--file", "a"),
        *("--tag", "a", "--tag", "b", "--code", "y", "--dry", "--size", "7"),
        *("--place", "/"),
    )
    assert result.exit_code == 0, result.output
    assert (seen["color"], seen["count"], seen["file"]) == (Color.RED, 3, Path("a"))
    assert (seen["size"], seen["place"]) == (7, Path("/"))
    assert (seen["tag"], seen["code"], seen["dry"]) == (["a", "b"], "Y", True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["wall", "--color", "green"], "'green' is not one of 'red'"),
        (["wall", "--count", "many"], "valid integer"),
        (["wall", "--count", "0"], "greater than or equal to 1"),
        (["wall", "--size", "many"], "valid integer"),
        (["wall", "--size", "9" * 5000], "integer"),
        (["wall", "--place", "/nowhere"], "does not exist"),
        ([], "Missing argument"),
    ],
)
def test_invalid_value_is_a_usage_error(arguments, error):
    result, seen = run(*arguments)
    assert result.exit_code == 2
    assert error in result.output
    assert "Value error" not in result.output
    assert not seen


def test_plain_values():
    assert plain_value("a", str) == "a"
    assert plain_value("red", Color) is Color.RED
    assert plain_value(("a", "b"), list[str]) == ["a", "b"]
    assert plain_value("5", int) is None
    assert plain_value("blue", Color) is None


def test_numbers_and_paths_need_no_pydantic():
    assert simple_value("5", int) == 5
    assert simple_value("a/b", Path) == Path("a/b")
    for value, kind in (("-5", int), ("1_0", int), ("", int), ("5", float)):
        assert simple_value(value, kind) is None
