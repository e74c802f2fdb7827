"""`danube-cli` and `danube-admin` explain themselves like `danube` does."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from pydanube.cli import danube_admin, danube_cli

SCRIPTS = {"danube-cli": danube_cli.app, "danube-admin": danube_admin.app}


def commands(command, words=()):
    contained = getattr(command, "commands", {})
    for name, each in contained.items():
        yield from commands(each, (*words, name))
    if not contained:
        yield words, command


ALL = [
    (script, *pair)
    for script, app in SCRIPTS.items()
    for pair in commands(typer.main.get_command(app))
]
each_command = pytest.mark.parametrize(
    ("script", "words", "command"), ALL, ids=[" ".join([s, *w]) for s, w, _ in ALL]
)


@each_command
def test_every_command_explains_itself(script, words, command):
    assert command.help.split("\n\n")[0].endswith(".")
    for parameter in command.params:
        assert parameter.hidden or parameter.help.endswith("."), parameter.name


@each_command
def test_an_unknown_option_is_an_error(script, words, command):
    result = CliRunner().invoke(SCRIPTS[script], [*words, "--no-such-option"])
    assert result.exit_code != 0
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_a_command_the_list_is_shown(script):
    result = CliRunner().invoke(SCRIPTS[script], [])
    assert f"$ {script} " in result.output
