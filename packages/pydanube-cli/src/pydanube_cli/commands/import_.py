"""`danube import`: creates and changes what definitions name."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pydanube.client.client import DEFAULT_URL, connect
from pydanube.model.errors import InvalidRequest
from pydanube_cli.administration.definitions.importing import (
    Action,
    Outcome,
    import_definitions,
)
from pydanube_cli.administration.definitions.pure.document import (
    DOCUMENT_BYTES_MAX,
    parse_definitions,
)
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.presentation.output import Columns, Fields, Result, Table

EXIT_FAILED = 1

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

COLUMNS: Columns = {
    "Kind": "kind",
    "Name": "name",
    "Outcome": lambda each: each.action.value,
    "Detail": "detail",
}


@command(
    app,
    "danube import definitions.json --dry-run",
    "danube import definitions.json",
    "danube export --url danube://old:6651 | danube import - --url danube://new:6651",
    name="import",
)
def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The file that danube export has written; - is the standard input.",
            show_default=False,
        ),
    ],
    *,
    dry_run: bool = False,
    url: parameters.Url = DEFAULT_URL,
) -> Result:
    """
    Create and change what a file of definitions names.

    Nothing is deleted, and what the file does not name stays as it is. What is there
    already is left alone, so an import can be repeated. New subscriptions begin with
    the next message. What cannot be done is listed with its reason, the rest is done,
    and the exit code is 1.

    Args:
        dry_run: Only show what would be created and changed.
    """
    definitions = parse_definitions(_content(file))

    async def work(_: Interruption) -> list[Outcome]:
        async with connect(url) as client:
            return await import_definitions(client, definitions, dry_run=dry_run)

    found = run(work)
    shown = [each for each in found if each.action is not Action.UNCHANGED]
    table: list[str | Table | Fields] = [Table.of(shown, COLUMNS), ""] if shown else []
    has_failed = any(each.action is Action.FAILED for each in found)
    return Result(
        found,
        *table,
        summary(found, dry_run=dry_run),
        exit_code=EXIT_FAILED if has_failed else 0,
    )


def summary(found: Sequence[Outcome], *, dry_run: bool) -> str:
    """Return how many things there are of each outcome."""
    counts = Counter(each.action for each in found)
    parts = [f"{counts[each]:,} {each.value}" for each in Action if counts[each]]
    text = ", ".join(parts) or "The file names nothing"
    return f"{text}; nothing has changed, this is a dry run." if dry_run else f"{text}."


def _content(file: str) -> bytes:
    # One byte more shows that it is too long.
    if file == "-":
        return sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror}") from error
