"""
The deletion of single rows of an Iceberg table's files.

A data file is immutable.  A second file has the positions of its deleted rows, and a
reader leaves them out.  Here such a file belongs to one data file and has all of its
deleted rows: it is replaced when there are more, and removed with the data file.  So
the number of files does not grow with the number of merges.

pyiceberg 0.12 reads files of positions, and writes none; what it lacks is here.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

from pydanube_spark.tables.data_files import PREFIX, DataFile, TableLocation

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The field ids that Iceberg reserves for the columns of such files."""

MIN_FORMAT_VERSION = 2
"""The first version of the format that has deleted rows."""

_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, kind, number in (
            ("file_path", pa.string(), PATH_ID),
            ("pos", pa.int64(), POSITION_ID),
        )
    ]
)


def are_known(task: FileScanTask) -> bool:
    """Return whether the deleted rows of *task* are in files of positions."""
    return all(
        each.content is DataFileContent.POSITION_DELETES
        and each.file_format == FileFormat.PARQUET
        for each in task.delete_files
    )


def live_rows(io: FileIO, task: FileScanTask) -> Any:
    """Return a mask of the rows of the data file that are not deleted."""
    mask = np.ones(task.file.record_count, np.bool_)
    for each in task.delete_files:
        with io.new_input(each.file_path).open() as source:
            rows = pq.ParquetFile(source).read(["file_path", "pos"], use_threads=False)
        own = rows.filter(pc.equal(rows["file_path"], task.file.file_path))
        mask[own["pos"].to_numpy()] = False
    return mask


def own_deletes(task: FileScanTask) -> list[IcebergDataFile]:
    """Return the files with deleted rows of this data file alone."""
    path = task.file.file_path.encode()
    return [
        each
        for each in task.delete_files
        if (each.lower_bounds or {}).get(PATH_ID) == path
        and (each.upper_bounds or {}).get(PATH_ID) == path
    ]


def write_deletes(
    location: TableLocation, file: IcebergDataFile, live: Any
) -> DataFile:
    """Write the positions of the rows of *file* that the mask *live* leaves out."""
    positions = np.flatnonzero(~live)
    paths = pa.repeat(pa.scalar(file.file_path), len(positions))
    rows = pa.Table.from_arrays([paths, pa.array(positions)], schema=_SCHEMA)
    path, sink = location.create(f"{PREFIX}deletes-{uuid.uuid4().hex}.parquet")
    with sink:
        pq.write_table(rows, sink, compression="zstd", use_dictionary=["file_path"])
        byte_count = sink.tell()
    ends = [int(positions[at]).to_bytes(8, "little") for at in (0, -1)]
    found = IcebergDataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(positions),
        file_size_in_bytes=byte_count,
        lower_bounds={PATH_ID: file.file_path.encode(), POSITION_ID: ends[0]},
        upper_bounds={PATH_ID: file.file_path.encode(), POSITION_ID: ends[1]},
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    found.spec_id = file.spec_id
    return DataFile(
        path=path, byte_count=byte_count, row_count=len(positions), details=found
    )


def exchange(
    transaction: Transaction,
    note: Mapping[str, str],
    *,
    replaced: Sequence[FileScanTask],
    added: Sequence[DataFile],
    changed: Sequence[tuple[FileScanTask, DataFile]] = (),
) -> None:
    """
    Replace files in one snapshot of *transaction*, whose table has a snapshot.

    The files of *replaced* go, with their deleted rows, and *added* come.  *changed*
    has further files with their new files of deleted rows.
    """
    with _exchange(transaction, note) as change:
        for task in replaced:
            change.delete_data_file(task.file)
        for file in added:
            change.append_data_file(file.details)
        for task in (*replaced, *(task for task, _ in changed)):
            change.removed_deletes.extend(own_deletes(task))
        change.added_deletes.extend(file.details for _, file in changed)


def replace_all(
    transaction: Transaction, note: Mapping[str, str], added: Sequence[DataFile]
) -> None:
    """Replace all rows by *added* in one snapshot; the table has a snapshot."""
    table = transaction._table  # noqa: SLF001
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with _exchange(transaction, note) as change:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.data_file.content is DataFileContent.DATA:
                    change.delete_data_file(entry.data_file)
                else:
                    change.removed_deletes.append(entry.data_file)
        for file in added:
            change.append_data_file(file.details)


def _exchange(transaction: Transaction, note: Mapping[str, str]) -> _Exchange:
    return _Exchange(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=transaction._table.io,  # noqa: SLF001  # As pyiceberg's own updates do.
        snapshot_properties=dict(note),
    )


class _DeletesWriter(ManifestWriterV2):  # type: ignore[misc]
    """Writes a manifest of files with deleted rows."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Exchange(_OverwriteFiles):  # type: ignore[misc]
    """An overwrite that also adds and removes files with deleted rows."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.added_deletes: list[IcebergDataFile] = []
        self.removed_deletes: list[IcebergDataFile] = []
        self._added_data_files: list[IcebergDataFile]
        self._deleted_data_files: set[IcebergDataFile]

    def _existing_manifests(self) -> list[ManifestFile]:
        # Those without files say what earlier snapshots have deleted; nobody asks.
        return [
            each
            for each in super()._existing_manifests()
            if each.has_added_files() or each.has_existing_files()
        ]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        found = []
        for each in super()._process_manifests(manifests):
            kept = each if each.content == ManifestContent.DATA else self._kept(each)
            if kept is not None:
                found.append(kept)
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for file in self.added_deletes:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            by_spec[file.spec_id].append(entry)
        written = [self._write(spec, entries) for spec, entries in by_spec.items()]
        return [*found, *written]

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        added, removed = self._added_data_files, self._deleted_data_files
        self._added_data_files = [*added, *self.added_deletes]
        self._deleted_data_files = {*removed, *self.removed_deletes}
        try:
            return super()._summary(snapshot_properties or {})
        finally:
            self._added_data_files, self._deleted_data_files = added, removed

    def _kept(self, manifest: ManifestFile) -> ManifestFile | None:
        """Return *manifest* without removed files; None: it has no others."""
        removed = {each.file_path for each in self.removed_deletes}
        entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
        if not entries:
            return None
        if not any(each.data_file.file_path in removed for each in entries):
            return manifest
        return self._write(
            manifest.partition_spec_id,
            [
                self._again(each, is_kept=each.data_file.file_path not in removed)
                for each in entries
            ],
        )

    def _again(self, entry: ManifestEntry, *, is_kept: bool) -> ManifestEntry:
        status = ManifestEntryStatus
        return ManifestEntry.from_args(
            status=status.EXISTING if is_kept else status.DELETED,
            snapshot_id=entry.snapshot_id if is_kept else self._snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _write(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with _DeletesWriter(
            self.spec(spec_id),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()
