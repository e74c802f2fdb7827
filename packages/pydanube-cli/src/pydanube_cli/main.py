"""
`danube`: finds the command, runs it, and turns its errors into an exit code.

The module of a command, and with it the client or the broker, is imported when the
command is run.  This file has the summaries of the commands, so that ``danube --help``
imports none of them.  Other packages add commands by entry points, which are looked for
only for the help and for commands that are not built in.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from copy import copy
from functools import cache
from importlib import import_module
from inspect import cleandoc
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.main import get_command_name

from pydanube.declarations.commands import CommandSet
from pydanube.model.extras import MissingExtra
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.plugins import COMMANDS, load_plugin, plugin_names
from pydanube.model.version import __version__
from pydanube_cli.invocation.completion import complete_contexts, suggest_topic
from pydanube_cli.invocation.context_options import address, address_context
from pydanube_cli.invocation.contexts import CONTEXT_VARIABLE
from pydanube_cli.invocation.error_report import exit_on_error
from pydanube_cli.invocation.parameters import examples
from pydanube_cli.presentation.help_pages import HelpfulCommand, HelpfulGroup

PANELS = {
    "Broker": {
        "up": "Run a broker, the console, and what a directory describes.",
        "broker": "Start a broker.",
        "brokers": "Show the brokers of a cluster, drain them, and balance their load.",
        "cluster": "Show the state of a cluster of brokers.",
        "connections": "List the clients that are connected, and close connections.",
        "recover": "Repair a data directory that is damaged or incomplete.",
        "backup": "Back up a running broker to a directory or an object store, and "
        "restore it.",
        "export": "Print the definitions of a broker or a cluster, as JSON.",
        "import": "Create and change what a file of definitions names.",
        "security": "Manage API keys, roles, bindings and quotas.",
        "certs": "Create certificates for TLS, for development.",
    },
    "Messages": {
        "produce": "Publish messages to a topic.",
        "consume": "Print the messages of a topic as they arrive.",
        "request": "Publish a request, wait for its reply, and print the reply.",
        "reply": "Reply to the requests of a topic, with the output of a program or an "
        "echo.",
        "read": "Print the messages that topics have now, without a subscription.",
        "docs": "Print the AsyncAPI 3 document of a program: its topics, messages and "
        "schemas.",
    },
    "Topics": {
        "topics": "Create, list, describe and delete topics.",
        "subscriptions": "Create, list, describe and delete subscriptions.",
        "schemas": "Manage schemas.",
        "namespaces": "Create, list and delete namespaces, and set limits and "
        "retention of their topics.",
        "storage": "Show, verify, upload, evict and copy the segments of a broker.",
        "dead-letters": "List, show, replay and drop dead letters.",
    },
    "Monitoring": {
        "lag": "Show how far subscriptions lag behind, the furthest first.",
        "top": "Show the activity of topics, continuously until Ctrl-C.",
    },
    "Diagnostics": {
        "doctor": "Check this machine and a running broker, and say what to do.",
        "debug": "Collect what a maintainer needs to find the cause of a problem.",
        "inspect": "Inspect the files that a broker writes.",
        "version": "Print the version.",
    },
    "Settings": {
        "config": "Manage contexts, the named addresses of brokers.",
        "completion": "Print the script that lets a shell complete commands, options "
        "and names.",
    },
}
"""The first sentence of each command's own help, by the part of the list."""

ELSEWHERE = {
    **dict.fromkeys(("pipeline", "lakehouse", "maintenance"), "pipelines"),
    **dict.fromkeys(("connect", "replicate"), "connect"),
    "console": "console",
    "mcp": "mcp",
}
"""The extras of the commands of other packages, for those who lack them."""

BUILT_IN = CommandSet(package="pydanube_cli.commands", panels=PANELS)
"""The commands of this package; other packages add theirs as plug-ins."""


def built_in_commands() -> dict[str, Command]:
    """Return the commands of this package by their names."""
    return {each.name: each for each in _commands_of(BUILT_IN)}


@cache
def all_commands() -> dict[str, Command]:
    """
    Return all commands by their names, with those of the plug-ins.

    Raises:
        InvalidConfig: A plug-in cannot be loaded.
    """
    found = [load_plugin(COMMANDS, name) for name in plugin_names(COMMANDS)]
    added = {each.name: each for one in found for each in _commands_of(one)}
    return built_in_commands() | added


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as it is in the list of commands."""

    name: str
    module: str
    panel: str
    summary: str
    uses_pandas: bool

    def entry(self) -> HelpfulCommand:
        """Return the entry in the list of commands; it cannot be run."""
        return HelpfulCommand(self.name, help=self.summary, rich_help_panel=self.panel)


def _commands_of(one: CommandSet) -> Iterator[Command]:
    for panel, commands in one.panels.items():
        for name, summary in commands.items():
            yield Command(
                name=name,
                module=f"{one.package}.{_module_of(name)}",
                panel=panel,
                summary=summary,
                uses_pandas=one.uses_pandas,
            )


def _module_of(command: str) -> str:
    return f"{command}_" if iskeyword(command) else command.replace("-", "_")


class Commands(HelpfulGroup):
    """A group of commands, each of which is imported when it is run."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the entry of a command in the list; those of plug-ins come last."""
        if cmd_name not in self.commands:
            self._add_plugins()
        return super().get_command(ctx, cmd_name)

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        self._add_plugins()
        return super().get_help(ctx)

    def _add_plugins(self) -> None:
        for each in all_commands().values():
            if each.name not in self.commands:
                self.add_command(each.entry())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """
        Return the command that *args* begin with, imported.

        Raises:
            MissingExtra: It is one of a package that is not installed.
        """
        # A shell that completes a line gets no error.
        extra = None if ctx.resilient_parsing or not args else ELSEWHERE.get(args[0])
        if extra is not None and self.get_command(ctx, args[0]) is None:
            raise MissingExtra(
                f"danube {args[0]} is in a package that is not installed: "
                f"pip install 'pydanube[{extra}]'"
            )
        name, entry, rest = super().resolve_command(ctx, args)
        return name, entry and load(name or "", *rest[:1]), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; if it fails, exit with a code."""
        with exit_on_error(
            is_debugging=ctx.params["debug"],
            find_context=lambda: address_context(ctx),
            suggest_topic=lambda error: suggest_topic(error, address(ctx) or ""),
        ):
            return super().invoke(ctx)


class _NoPandas:
    """
    An import hook that refuses pandas.

    Arrow imports pandas with its first array if it is installed, which would be a third
    of the start-up time of a broker.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise if *fullname* is that of pandas."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("this command does not import pandas")


_NO_PANDAS = _NoPandas()


def load(name: str, subcommand: str | None = None) -> Any:
    """
    Import and return the command *name*, and enable the garbage collector.

    If it has a *subcommand* of this name, the others are left out, because Typer takes
    a millisecond to build each.
    """
    declared = built_in_commands().get(name) or all_commands()[name]
    if declared.uses_pandas and _NO_PANDAS in sys.meta_path:
        sys.meta_path.remove(_NO_PANDAS)
    group = import_module(declared.module).app
    chosen = [
        each
        for each in group.registered_commands
        if subcommand == (each.name or get_command_name(each.callback.__name__))
    ]
    if chosen:
        group = copy(group)
        group.registered_commands = chosen
    # A group stays one with a single command.
    is_group = chosen or group.info.cls is HelpfulGroup
    build = typer.main.get_group if is_group else typer.main.get_command
    command: Any = build(group)
    command.name = name
    _unwrap(command)
    if not gc.isenabled():
        # What was imported stays, and no collection has to look at it.
        gc.freeze()
        gc.enable()
    return command


def _unwrap(command: Any) -> None:
    """Join the lines of each paragraph in the help, so that the terminal wraps them."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    for each in getattr(command, "commands", {}).values():
        _unwrap(each)


# Commands report errors themselves; without a handler, Python prints warnings.
logging.getLogger("pydanube.client").addHandler(logging.NullHandler())

app = typer.Typer(
    name="danube",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "danube broker",
        "danube produce /default/hello -m 'Hello, Danube'",
        "danube consume /default/hello -s me --from earliest -n 1",
    ),
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"danube {__version__}")
        raise typer.Exit


@app.callback()
def danube(
    *,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            envvar=CONTEXT_VARIABLE,
            autocompletion=complete_contexts,
            help="The context, which gives the address of the broker; by default the "
            "one that 'danube config use' has chosen.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback if the command fails.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """
    A messaging and streaming platform: durable topics, a fast client, Spark.

    Start a broker with "danube broker", and use it from another terminal.
    """


for _each in built_in_commands().values():
    # ``Commands`` runs the real one.
    app.command(_each.name, help=_each.summary, rich_help_panel=_each.panel)(
        lambda: None
    )


def main() -> None:
    """Run the command that the arguments of the process name."""
    sys.meta_path.insert(0, _NO_PANDAS)
    app(prog_name="danube")


if __name__ == "__main__":
    main()
