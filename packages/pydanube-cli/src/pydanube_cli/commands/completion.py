"""`danube completion`: prints the script that completes `danube` in a shell."""

from __future__ import annotations

from enum import Enum

import typer
from typer._completion_shared import get_completion_script

from pydanube_cli.invocation.declaration import command

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Shell(Enum):
    """A shell that completes commands."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app, "danube completion bash", "danube completion zsh")
def completion(shell: Shell) -> None:
    """
    Print the script that lets a shell complete commands, options and names.

    In bash, 'eval "$(danube completion bash)"' in ~/.bashrc runs it; zsh reads it from
    a file _danube in a directory of fpath, fish from
    ~/.config/fish/completions/danube.fish. The shell then asks the broker for the names
    of topics, subscriptions and namespaces. 'danube --install-completion' does all of
    it for the current shell.

    Args:
        shell (bash|zsh|fish): The shell that runs the script.
    """
    script = get_completion_script(
        prog_name="danube", complete_var="_DANUBE_COMPLETE", shell=shell.value
    )
    typer.echo(script)
