"""`danube backup`: backs up a running broker, and restores its data directory."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from pydanube.model.descriptions import BackupProgress
from pydanube.model.errors import Unavailable
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_bytes, format_time
from pydanube_broker.servers.directories.restore import choose_backup, restore_backup
from pydanube_broker.servers.settings.config import load_config
from pydanube_broker.storage.backup_format import BackupRecord, backup_ids, read_record
from pydanube_cli.administration.object_stores import (
    NamedStore,
    Store,
    StoreOptions,
    StoreSettings,
    open_store,
)
from pydanube_cli.invocation.declaration import Connect, command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table, print_note
from pydanube_cli.presentation.progress_line import progress_line

POLL_INTERVAL_S = 0.2

app = command_group(
    """
    Back up a running broker to a directory or an object store, and restore it.

    A backup has the broker's state of one moment: messages, subscriptions, schemas and
    settings. Segments never change, so a further backup to the same store copies only
    new ones.
    """,
    "danube backup create backups",
    "danube backup list /mnt/backups",
    "danube backup restore /mnt/backups --data-dir restored",
)


@command(
    app,
    "danube backup create backups",
    "danube backup create backups --no-wait",
)
def create(
    connect: Connect,
    name: NamedStore,
    *,
    wait: bool = True,
) -> Result:
    """
    Back up the broker while it goes on serving.

    The broker itself writes to the store, whose URL and options are in its settings:
    stores.NAME.url and stores.NAME.options. Until the backup is finished, the broker
    removes no segments and deletes no topics. If this command is interrupted, the
    broker continues; see danube backup status.

    Args:
        wait (--wait/--no-wait): Whether to wait until the backup is complete.
    """
    with connect() as client:
        progress = client.storage.create_backup(name)
        if not wait:
            return Result(progress, f"the backup {progress.id} has begun")
        with progress_line("backing up", is_shown=sys.stderr.isatty()) as show:
            while progress.is_running:
                time.sleep(POLL_INTERVAL_S)
                progress = client.storage.describe_backup()
                show(_describe(progress), progress.bytes_done)
    if progress.error:
        raise Unavailable(f"the backup {progress.id} failed: {progress.error}")
    _warn_of_damage(progress.damaged)
    return Result(
        progress,
        f"the backup {progress.id} is complete: {_describe(progress)}, of which "
        f"{progress.segments_shared} were there already",
        exit_code=1 if progress.damaged else 0,
    )


@command(app, "danube backup status", "danube backup status --format json")
def status(connect: Connect) -> Result:
    """Show the progress of the broker's last backup since its start."""
    with connect() as client:
        progress = client.storage.describe_backup()
    if not progress.id:
        return Result(progress, "the broker has made no backup since its start")
    return Result(progress, Fields.of(progress, PROGRESS))


@command(
    app,
    "danube backup list s3://bucket/danube",
    "danube backup list backups --config broker.yaml",
    name="list",
)
def list_backups(
    store: Store, *, option: StoreOptions = None, config: StoreSettings = None
) -> Result:
    """List the complete backups in STORE, the oldest first."""

    async def read() -> list[BackupRecord]:
        objects = open_store(store, config, option)
        return [await read_record(objects, each) for each in await backup_ids(objects)]

    found = asyncio.run(read())
    rows = [
        {
            "id": each.id,
            "cluster_id": each.cluster_id,
            "version": each.version,
            "created_at": to_datetime(each.created_at),
            "segments": len(each.segments),
            "byte_count": each.byte_count,
            "damaged": each.damaged,
        }
        for each in found
    ]
    return Result(rows, Table.of(found, BACKUP))


@command(
    app,
    "danube backup restore /mnt/backups --data-dir restored",
    "danube backup restore s3://bucket/danube --backup 20260131T120000000Z",
)
def restore(
    store: Store,
    *,
    option: StoreOptions = None,
    config: StoreSettings = None,
    backup: str | None = None,
    data_dir: Path | None = None,
) -> Result:
    """
    Restore a backup to a new data directory; then start a broker there.

    Every file is compared with its checksum. Messages that were published after the
    backup are not in it, and their offsets will be assigned again: do not let clients
    that have seen them continue without a new subscription.

    Args:
        backup (ID): The backup; by default the newest one.
        data_dir (DIR): The directory, which must not exist or be empty. By default
            that of the settings, or danube-data in the current directory.
    """
    path = load_config(config, os.environ, {"data_dir": data_dir}).data_dir

    async def run() -> BackupRecord:
        objects = open_store(store, config, option)
        record = await choose_backup(objects, backup)
        total = format_bytes(record.byte_count)
        with progress_line("restoring", is_shown=sys.stderr.isatty()) as show:
            await restore_backup(
                objects,
                record,
                path,
                lambda done: show(f"{format_bytes(done)} of {total}", done),
            )
        return record

    record = asyncio.run(run())
    _warn_of_damage(record.damaged)
    return Result(
        {"id": record.id, "data_dir": str(path), "byte_count": record.byte_count},
        f"the backup {record.id} is restored to {path}; start it with 'danube broker "
        f"--data-dir {path}'",
    )


def _warn_of_damage(damaged: list[str] | tuple[str, ...]) -> None:
    for name in damaged:
        print_note(
            f"not in the backup, because it is damaged or missing: the segment {name}"
        )


def _describe(progress: BackupProgress) -> str:
    return (
        f"{progress.segments_done} of {progress.segment_count} segments, "
        f"{format_bytes(progress.bytes_done)} of {format_bytes(progress.byte_count)}"
    )


def _state(progress: BackupProgress) -> str:
    if progress.is_running:
        return "running"
    return f"failed: {progress.error}" if progress.error else "complete"


PROGRESS: Columns = {
    "Backup": "id",
    "Store": "url",
    "State": _state,
    "Progress": _describe,
    "Stored before": lambda progress: f"{progress.segments_shared} segments",
    "Damaged": lambda progress: ", ".join(progress.damaged) or None,
}

BACKUP: Columns = {
    "Backup": "id",
    "Made": lambda record: format_time(to_datetime(record.created_at)),
    "Segments": lambda record: str(len(record.segments)),
    "Size": lambda record: format_bytes(record.byte_count),
    "Damaged": lambda record: str(len(record.damaged)),
    "Version": "version",
    "Cluster": "cluster_id",
}
