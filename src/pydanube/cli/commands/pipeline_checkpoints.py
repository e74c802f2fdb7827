"""`danube pipeline checkpoint`: checkpoints to an object store and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli.commands.pipeline_files import (
    File,
    Set,
    load_pipeline,
    problems_reported,
    state_of,
)
from pydanube.cli.output import OutputFormat, print_line
from pydanube.cli.parameters import examples
from pydanube.cli.quantities import format_bytes
from pydanube.pipelines.state import is_alive

if TYPE_CHECKING:
    from pathlib import Path

    from pydanube.pipelines.checkpoints import CheckpointStore
    from pydanube.pipelines.loading import Pipeline
    from pydanube.pipelines.snapshots import Manifest
    from pydanube.pipelines.state import StateDirectory

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Copy checkpoints to an object store and back.",
)

Force = Annotated[
    bool,
    typer.Option("--force", help="Replace what is newer or of other queries."),
]


@app.command(epilog=examples("danube pipeline checkpoint push orders.yaml"))
def push(
    file: File,
    *,
    settings: Set = None,
    force: Force = False,
) -> None:
    """
    Copy the checkpoints to the object store that the file names.

    This may be done while the pipeline runs, and a run does it by itself when it
    begins, every now and then, and when it ends.
    """
    pipeline, state, store = _store(file, settings)
    if state.is_locked():
        manifest = store.push(state, is_final=False, force=force)
    else:
        with state.locked("the checkpoints cannot be pushed"):
            manifest = store.push(state, is_final=_is_ended(state), force=force)
    _print_manifest("pushed", pipeline, manifest)


@app.command(epilog=examples("danube pipeline checkpoint pull orders.yaml"))
def pull(
    file: File,
    *,
    settings: Set = None,
    force: Force = False,
    at_least_once: Annotated[
        bool,
        typer.Option(
            "--at-least-once",
            help="Take a snapshot of a run that has not pushed its end: queries become "
            "new ones, and what was written behind the snapshot is written again.",
        ),
    ] = False,
) -> None:
    """
    Replace the checkpoints here by those in the object store.

    Newer ones are not replaced, and the pipeline must not be running.
    """
    pipeline, state, store = _store(file, settings)
    with state.locked("the checkpoints cannot be pulled"):
        manifest = store.pull(state, force=force, at_least_once=at_least_once)
    _print_manifest("pulled", pipeline, manifest)


def _store(
    file: Path, settings: list[str] | None
) -> tuple[Pipeline, StateDirectory, CheckpointStore]:
    from pydanube.pipelines.checkpoints import checkpoint_store  # noqa: PLC0415

    with problems_reported(OutputFormat.TABLE):
        pipeline = load_pipeline(file, settings)
    return pipeline, state_of(pipeline), checkpoint_store(pipeline)


def _is_ended(state: StateDirectory) -> bool:
    """Whether the last run has ended by itself; what was killed may go on a little."""
    found = state.read_status()
    return found is None or not is_alive(found.jvm) or found.state.is_over


def _print_manifest(done: str, pipeline: Pipeline, manifest: Manifest) -> None:
    size = format_bytes(sum(each.byte_count for each in manifest.files))
    kind = "" if manifest.is_final else ", taken during a run"
    print_line(
        f"{pipeline.name}: {done} snapshot {manifest.generation} of "
        f"{manifest.created}{kind}, {len(manifest.files)} files, {size}"
    )
