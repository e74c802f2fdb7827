"""The options and the output of the commands that change settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from pydanube.model.descriptions import RetentionDrops
from pydanube.model.setting_documents import Document, changes_between, summarize
from pydanube_cli.administration.retention_drops import drops_shown
from pydanube_cli.presentation.output import Columns, Fields, Result, Table

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting, such as retention.age=7d; repeat it for more. Without it, the "
        "settings are shown.",
        show_default=False,
    ),
]


def shown(document: Document) -> Result:
    """Return all settings in *document*, with the names that ``--set`` takes."""
    facts: list[tuple[str, object]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            facts += [
                (f"{name}.{inner}", summarize(each)) for inner, each in value.items()
            ]
        else:
            facts.append((name, summarize(value)))
    return Result(document, Fields(facts))


def changed(
    what: str,
    before: Document,
    after: Document,
    apply: Callable[[], None],
    *,
    dry_run: bool,
    drops: Sequence[RetentionDrops] | None = None,
) -> Result:
    """
    Call *apply* if the documents differ and this is no dry run; return the changes.

    *drops* is what a dry run of another retention would remove.
    """
    changes = changes_between(before, after)
    value: dict[str, Any] = {"changed": what, "changes": changes, "dry_run": dry_run}
    parts: list[Any] = []
    if drops is not None:
        value["drops"], parts = drops, ["", *drops_shown(drops, are_planned=True)]
    if not changes:
        return Result(value, f"{what} has these settings already.")
    if not dry_run:
        apply()
    said = f"{what} would change:" if dry_run else f"{what} has changed:"
    return Result(value, said, Table.of(changes, CHANGE), *parts)


CHANGE: Columns = {
    "Setting": "setting",
    "Old": lambda change: summarize(change.old),
    "New": lambda change: summarize(change.new),
}
