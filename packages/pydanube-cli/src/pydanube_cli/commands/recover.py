"""`danube recover`: repairs a data directory that is damaged or incomplete."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import typer

from pydanube.model.errors import InvalidConfig, NotFound
from pydanube_broker.servers.directories.directory import hold_directory
from pydanube_broker.servers.recovery.contents import RecoveryReport
from pydanube_broker.servers.recovery.process_switch import gather_directory
from pydanube_broker.servers.recovery.recover import recover_directory
from pydanube_broker.servers.settings.config import load_config
from pydanube_broker.servers.settings.process_config import has_processes
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command, confirm
from pydanube_cli.presentation.output import (
    Columns,
    Fields,
    OutputFormat,
    Result,
    Table,
    show,
)

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube recover --data-dir /var/lib/danube --dry-run",
    "danube recover --data-dir /var/lib/danube --from-segments",
    "danube recover --data-dir /var/lib/danube --accept-loss --yes",
)
def recover(
    *,
    data_dir: Path | None = None,
    config: Path | None = None,
    from_segments: bool = False,
    accept_loss: bool = False,
    dry_run: bool = False,
    yes: parameters.Yes = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Repair a data directory that is damaged or incomplete.

    It shows what it found and what it would change, and asks before it writes. Nothing
    is deleted: files that are replaced are moved to the directory "replaced" inside of
    DIR. An interrupted run can be repeated.

    A directory that several processes have used gets the form of one process first. The
    broker can then be started with any number of processes.

    Args:
        data_dir (DIR): The data directory; its broker must not be running. By default
            danube-data in the current directory.
        config (FILE): The broker's settings file; also set by the variable
            DANUBE_CONFIG.
        from_segments: Rebuild the metadata of topics from the object store and the
            journal.
        accept_loss: Give up the messages that a missing or damaged journal or object
            store held. Each topic continues at an offset that was never used; readers
            of the offsets in between get an error.
        dry_run: Only show what was found.
    """
    settings = load_config(config, os.environ, {"data_dir": data_dir})
    if (remote := settings.metadata.remote) is not None:
        raise InvalidConfig(
            "'danube recover' repairs metadata in an SQLite file only, not in "
            f"{remote.SERVICE} (metadata.kind): restore {remote.SERVICE} from a "
            "snapshot"
        )
    path = settings.data_dir
    parts = ("metadata.sqlite", "journal", "objects")
    if not any((path / part).exists() for part in parts):
        raise NotFound(f"{path} is not a broker's data directory")
    with hold_directory(path, settings.metadata.file) as directory:

        def run(*, write: bool) -> RecoveryReport:
            return asyncio.run(
                recover_directory(
                    directory,
                    settings.storage,
                    from_segments=from_segments,
                    accept_loss=accept_loss,
                    write=write,
                )
            )

        if has_processes(path) and not dry_run:
            confirm(
                f"Several processes have used {path}. Write their journals to one, as "
                "for one process?",
                is_sure=yes,
            )
            asyncio.run(gather_directory(directory, settings.storage))
        findings = run(write=False)
        is_whole = not (findings.needs_from_segments or findings.needs_accept_loss)
        if not dry_run and not is_whole:
            if output_format is OutputFormat.TABLE:
                show(*_shown(findings))
            confirm(f"Change {path} as shown?", is_sure=yes)
            findings = run(write=True)
    if dry_run or is_whole:
        return Result(findings, *_shown(findings))
    return Result(findings, f"{path} is recovered; start the broker.")


def _shown(findings: RecoveryReport) -> list[str | Table | Fields]:
    parts: list[str | Table | Fields] = [
        Fields.of(findings, FIELDS),
        "",
        Table.of(findings.topics, TOPIC),
    ]
    subscriptions = [
        (topic.topic, name, str(cursor))
        for topic in findings.topics
        for name, cursor in topic.subscriptions.items()
    ]
    if subscriptions:
        parts += ["", Table(("Topic", "Rebuilt subscription", "Cursor"), subscriptions)]
    parts += [
        f"ignored: {name} is not a segment of a topic above"
        for name in findings.unreadable
    ]
    if findings.needs_from_segments:
        parts += [
            f"{topic.topic} begins at offset {topic.begin}: earlier messages were "
            "dropped by retention, or their segments are lost; without the metadata, "
            "nothing tells which"
            for topic in findings.topics
            if topic.begin
        ]
    flags = [
        flag
        for flag, is_needed in (
            ("--from-segments", findings.needs_from_segments),
            ("--accept-loss", findings.needs_accept_loss),
        )
        if is_needed
    ]
    verdict = (
        f"'danube recover {' '.join(flags)}' repairs the directory as shown."
        if flags
        else "The parts of the directory are consistent; there is nothing to recover."
    )
    return [*parts, "", verdict]


FIELDS: Columns = {
    "Directory": "directory",
    "Cluster": "cluster_id",
    "Metadata store": "metadata",
    "Journal": "journal",
    "Object store": "objects",
    "Remote object store": "remote",
}

TOPIC: Columns = {
    "Topic": "topic",
    "Record": lambda topic: "rebuilt" if topic.is_rebuilt else "there",
    "Segments": lambda topic: str(topic.segments),
    "rebuilt": lambda topic: str(topic.rebuilt_segments),
    "From": lambda topic: topic.base if topic.base is None else str(topic.base),
    "To": lambda topic: str(topic.end),
    "Salvaged": lambda topic: str(topic.salvaged),
    "Continues at": lambda topic: str(topic.next_offset),
}
