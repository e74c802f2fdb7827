"""The commands of ``danube connect`` about the connectors that a broker stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from pydanube.client.client import DEFAULT_URL, Client, connect
from pydanube.declarations.pure.parameters import parse_set
from pydanube.model.errors import InvalidRequest
from pydanube.model.stored_connectors import StoredConnector
from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation import interruption, parameters
from pydanube_cli.invocation.declaration import command, confirm
from pydanube_cli.presentation.output import Columns, OutputFormat, Result, Table
from pydanube_connect.applying import (
    Action,
    Planned,
    plan_definitions,
    store_definitions,
)
from pydanube_connect.definitions import (
    Definition,
    fields_of,
    file_of,
    read_definitions,
)

T = TypeVar("T")

DONE = {"pause": "will pause", "resume": "runs again", "restart": "starts again"}
"""The effect of each action, after the name of the connector."""

StoredName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of a stored connector.", show_default=False
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Add the commands about stored connectors to ``danube connect``."""

    @command(
        app,
        "danube connect apply orders.yaml --dry-run",
        "danube connect apply orders.yaml sensors.yaml --set host=mqtt.example.com",
    )
    def apply(
        files: Annotated[
            list[Path],
            typer.Argument(
                metavar="FILE…",
                help="The files that declare connectors.",
                show_default=False,
            ),
        ],
        *,
        settings: Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="NAME=VALUE",
                help="Set a parameter of the files; may be repeated.",
            ),
        ] = None,
        dry_run: bool = False,
        url: parameters.Url = DEFAULT_URL,
        output_format: parameters.FormatOption = OutputFormat.TABLE,
    ) -> Result:
        """
        Store the connectors of files in the broker, for workers to run, or change them.

        The files are validated first, apart from values that refer to secrets. Secrets
        stay references: workers read them. Connectors that the files do not name stay
        as they are. You become the author, and a connector may use only the topics that
        both its author and its worker may use.

        Args:
            dry_run: Only show what would be created and changed.
        """
        definitions = _read_all(files, parse_set(settings or ()), output_format)

        async def work(client: Client) -> list[Planned]:
            planned = await plan_definitions(client, definitions)
            if not dry_run:
                await store_definitions(client, planned)
            return planned

        found = _ask(url, work)
        rows = [
            {
                "connector": each.definition.name,
                "action": each.action.value,
                "changes": list(each.changes),
            }
            for each in found
        ]
        lines = [line for each in found for line in _lines_of(each)]
        if dry_run:
            lines.append("Nothing has changed, this is a dry run.")
        return Result(rows, *lines)

    @command(app, "danube connect list", name="list")
    def list_stored(*, url: parameters.Url = DEFAULT_URL) -> Result:
        """List the connectors that the broker stores, and what is wrong with them."""
        found = _ask(url, lambda client: client.connectors.list())
        rows = [_row(each, found.now) for each in found.connectors]
        columns: Columns = {
            "Connector": "connector",
            "Kind": "kind",
            "Topic": "topic",
            "Health": "health",
            "Worker": lambda each: each["worker"] or "",
            "Lag": lambda each: "" if each["lag"] is None else f"{each['lag']:,}",
            "Problem": "problem",
        }
        return Result(rows, Table.of(rows, columns))

    @command(app, "danube connect show orders", "danube connect show orders > o.yaml")
    def show(
        name: StoredName,
        *,
        url: parameters.Url = DEFAULT_URL,
        output_format: parameters.FormatOption = OutputFormat.TABLE,
    ) -> Result:
        """
        Show the definition of a stored connector, as a file that can be applied.

        Its state stands in comments before it.
        """

        async def work(client: Client) -> tuple[StoredConnector, int]:
            stored = await client.connectors.describe(name)
            return stored, (await client.connectors.list()).now

        stored, now = _ask(url, work)
        row = _row(stored, now)
        fields = fields_of(stored.definition)
        del output_format
        text = file_of(name, stored.definition)
        comments = [
            f"# {label}: {row[key]}"
            for label, key in (
                ("health", "health"),
                ("problem", "problem"),
                ("worker", "worker"),
                ("author", "author"),
                ("revision", "revision"),
            )
            if row[key]
        ]
        return Result({**row, "definition": fields}, *comments, text)

    @command(app, "danube connect delete orders", "danube connect delete orders --yes")
    def delete(
        names: Annotated[
            list[str],
            typer.Argument(
                metavar="NAME…",
                help="The names of stored connectors.",
                show_default=False,
            ),
        ],
        *,
        yes: parameters.Yes = False,
        url: parameters.Url = DEFAULT_URL,
    ) -> Result:
        """
        Delete stored connectors; workers stop them within seconds.

        Their topics, positions and subscriptions stay, so a connector that is applied
        again under its name continues where it stopped.
        """
        confirm(f"Delete {', '.join(names)}?", is_sure=yes)

        async def work(client: Client) -> None:
            for name in names:
                await client.connectors.delete(name)

        _ask(url, work)
        return Result(
            [{"connector": each, "deleted": True} for each in names],
            *(f"{each} is deleted." for each in names),
        )


def act_on_stored(url: str, action: str, names: Iterable[str]) -> list[str]:
    """
    Pause, resume or restart stored connectors; return what happens, in words.

    Raises:
        NotFound: One is not stored.
    """

    async def work(client: Client) -> list[str]:
        done = []
        for name in names:
            await getattr(client.connectors, action)(name)
            done.append(f"{name} {DONE[action]}")
        return done

    return _ask(url, work)


def _ask(url: str, work: Callable[[Client], Awaitable[T]]) -> T:
    async def connected(_: interruption.Interruption) -> T:
        async with connect(url) as client:
            return await work(client)

    return interruption.run(connected)


def _read_all(
    files: Sequence[Path], given: dict[str, str], output_format: OutputFormat
) -> list[Definition]:
    found: dict[str, Definition] = {}
    with exit_on_problems(output_format):
        for file in files:
            for each in read_definitions(file, given):
                if each.name in found:
                    raise InvalidRequest(
                        f"the connector {each.name} is declared twice: the names of "
                        "connectors differ"
                    )
                found[each.name] = each
    return list(found.values())


def _lines_of(planned: Planned) -> list[str]:
    name = planned.definition.name
    if planned.action is not Action.CHANGED:
        return [f"{name}: {planned.action.value}"]
    return [f"{name}: changed", *(f"  {each}" for each in planned.changes)]


def _row(connector: StoredConnector, now: int) -> dict[str, object]:
    report = connector.report
    return {
        "connector": connector.name,
        "kind": connector.kind,
        "topic": connector.topic,
        "health": connector.health(now).value,
        "problem": connector.problem(now),
        "worker": None if report is None else report.worker,
        "lag": None if report is None else report.lag,
        "messages": None if report is None else report.messages,
        "author": connector.author,
        "revision": connector.revision,
    }
