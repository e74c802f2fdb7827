"""Commands are declared by functions and their docstrings."""

import pytest
import typer
from typer.testing import CliRunner

from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import Result

app = typer.Typer()


@command(app, "danube add 1 -b 2")
def add(first: int, *, other: int = 0, twice: bool = False) -> Result:
    """
    Add two numbers.

    They can be negative.

    Args:
        first (NUMBER): The first
            number.
        other (-b NUMBER): The other number.
        twice: Double the sum.
    """
    total = (first + other) * (2 if twice else 1)
    return Result({"sum": total}, f"The sum is {total}.", exit_code=int(total < 0))


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_result_is_text_or_json():
    assert run("1", "-b", "2").stdout == "The sum is 3.\n"
    assert run("1", "--other", "2", "--twice").stdout == "The sum is 6.\n"
    assert run("1", "--format", "json").stdout == '{\n  "sum": 1\n}\n'


def test_result_has_an_exit_code():
    assert (run("1").exit_code, run("--", "-1").exit_code) == (0, 1)


def test_help_of_arguments_is_in_the_docstring():
    shown = " ".join(run("--help").stdout.split())
    assert "They can be negative." in shown
    assert "Args" not in shown
    assert "The first number." in shown
    assert "--no-twice" not in shown
    assert "danube add 1 -b 2" in shown


def test_documented_argument_must_exist():
    def function() -> Result:
        """
        Do nothing.

        Args:
            other: Something.
        """

    other = typer.Typer()
    command(other)(function)
    with pytest.raises(AssertionError):
        typer.main.get_command(other)


def test_parameters_of_commands_that_are_not_run_are_not_read():
    group = typer.Typer()

    def broken(first: "NoSuchType") -> Result:  # noqa: F821
        """Have a parameter whose type cannot be read."""

    command(group)(add)
    command(group)(broken)
    group.registered_commands = [
        each for each in group.registered_commands if each.callback.__name__ == "add"
    ]
    assert CliRunner().invoke(group, ["1"]).stdout == "The sum is 1.\n"
