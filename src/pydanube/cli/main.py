"""
`danube`: finds the command, runs it, and turns its errors into an exit code.

The module of a command, and with it the client or the broker, is imported when the
command is run.  This file has the summaries of all commands, so that
``danube --help`` imports none of them.
"""

from __future__ import annotations

import gc
import logging
import sys
from copy import copy
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.main import get_command_name

from pydanube.cli.completion import complete_contexts
from pydanube.cli.context_options import address_context
from pydanube.cli.contexts import CONTEXT_VARIABLE
from pydanube.cli.error_report import exit_on_error
from pydanube.cli.help_pages import HelpfulGroup
from pydanube.cli.parameters import examples
from pydanube.model.version import __version__

SUMMARIES = {
    "Broker": {
        "broker": "Start a broker.",
        "brokers": "Show the brokers of a cluster, drain them, and balance their load.",
        "cluster": "Show the state of a cluster of brokers, or try one.",
        "recover": "Repair a data directory that is damaged or incomplete.",
        "backup": "Back up a running broker to a directory or an object store, and "
        "restore it.",
        "security": "Manage API keys, roles, bindings and quotas.",
        "certs": "Create certificates for TLS, for development.",
        "demo": "Run a demonstration of the whole system on real data.",
        "bench": "Measure throughput and latency on this machine.",
    },
    "Messages": {
        "produce": "Publish messages to a topic.",
        "consume": "Print the messages of a topic as they arrive.",
        "request": "Publish a request, wait for its reply, and print the reply.",
        "reply": "Reply to the requests of a topic, with the output of a program or an "
        "echo.",
        "read": "Print the messages that topics have now, without a subscription.",
        "tail": "Print the new messages of topics as they arrive, without a "
        "subscription.",
    },
    "Topics": {
        "topics": "Create, list, describe and delete topics.",
        "subscriptions": "Create, list, describe and delete subscriptions.",
        "schemas": "Manage schemas, and bind topics to them.",
        "admin": "Manage brokers, namespaces, topics and subscriptions.",
        "maintenance": "Merge, compact and verify the segments of topics.",
        "storage": "Show, verify, upload, evict and copy the segments of a broker.",
        "dead-letters": "List, show, replay and drop dead letters.",
    },
    "Monitoring": {
        "lag": "Show how far subscriptions lag behind, the furthest first.",
        "top": "Show the activity of topics, continuously until Ctrl-C.",
        "console": "Serve the web console for browsers.",
    },
    "Connectors": {
        "replicate": "Mirror topics to another broker or cluster, and let it take "
        "over.",
        "connect": "Run connectors, which publish what other systems have, or write "
        "messages to them.",
    },
    "Spark": {
        "pipeline": "Run a pipeline of topics, files and tables on Spark.",
        "lakehouse": "Export topics to tables of Delta Lake and Iceberg.",
    },
    "Assistants": {
        "mcp": "Run an MCP server, with which an AI assistant inspects brokers.",
    },
    "Diagnostics": {
        "doctor": "Check this machine and a running broker, and say what to do.",
        "debug": "Collect what a maintainer needs to find the cause of a problem.",
        "inspect": "Inspect the files that a broker writes.",
        "version": "Print the version.",
    },
    "Settings": {
        "config": "Manage contexts, the named addresses of brokers.",
    },
}
"""The first sentence of each command's own help, by the panel that shows it."""

COMMANDS = {name: text for panel in SUMMARIES.values() for name, text in panel.items()}


WITH_PANDAS = frozenset({"demo", "bench", "pipeline", "lakehouse", "maintenance"})
"""The commands that run Spark, which needs pandas."""


class Commands(HelpfulGroup):
    """A group of commands, each of which is imported when it is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that *args* begin with, imported."""
        name, entry, rest = super().resolve_command(ctx, args)
        return name, entry and load(name or "", *rest[:1]), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; if it fails, exit with a code."""
        with exit_on_error(
            is_debugging=ctx.params["debug"], find_context=lambda: address_context(ctx)
        ):
            return super().invoke(ctx)


def load(name: str, subcommand: str | None = None) -> Any:
    """
    Import and return the command *name*, and enable the garbage collector.

    If it has a *subcommand* of this name, the others are left out, because Typer takes
    a millisecond to build each.
    """
    group = import_module(f"pydanube.cli.commands.{name.replace('-', '_')}").app
    chosen = [
        each
        for each in group.registered_commands
        if subcommand == (each.name or get_command_name(each.callback.__name__))
    ]
    if chosen:
        group = copy(group)
        group.registered_commands = chosen
        command: Any = typer.main.get_group(group)
    else:
        command = typer.main.get_command(group)
    command.name = name
    _unwrap(command)
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


def _entry_without_module() -> None:
    """Stand in for a command in the list; ``Commands`` runs the real one."""


for _panel, _commands in SUMMARIES.items():
    for _name, _text in _commands.items():
        app.command(_name, help=_text, rich_help_panel=_panel)(_entry_without_module)


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


def main() -> None:
    """Run the command that the arguments of the process name."""
    if WITH_PANDAS.isdisjoint(sys.argv):
        sys.meta_path.insert(0, _NoPandas())
    app(prog_name="danube")


if __name__ == "__main__":
    main()
