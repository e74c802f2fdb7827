"""
The exporters, which keep a table up to date with a topic in rounds.

Each round reads the exported offsets from the table and the topic's end from the
broker.  Its tasks write files, and one transaction adds the files and the new offsets
to the table.  If a process is killed at any point, the next round continues at the
offsets in the table.  Concurrent exports conflict, but never damage the table.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydanube.model.errors import (
    Conflict,
    InvalidRequest,
    TopicNotFound,
)
from pydanube_spark.jobs import Runner, raise_first
from pydanube_spark.reader import topics
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import Decoding
from pydanube_spark.reader.decoding_planner import DecodingPlanner
from pydanube_spark.reader.pure.query_positions import Head, Position
from pydanube_spark.reader.pure.read_options import (
    OnUndecodable,
    ReadOptions,
    ValueOptions,
)
from pydanube_spark.reader.pure.scans import TopicRange
from pydanube_spark.reader.segment_access import SegmentAccess
from pydanube_spark.tables.data_files import DataFile, TableLocation
from pydanube_spark.tables.export.export_jobs import ExportJob, ExportResult, export
from pydanube_spark.tables.export.pure import rounds
from pydanube_spark.tables.export.pure.rounds import ExportRound
from pydanube_spark.tables.export.table_columns import TableColumns, TableLayout
from pydanube_spark.tables.pure.table_options import (
    FILE_BYTES_MAX,
    MIB,
    PartitionField,
    UndecodablePolicy,
    WriteOptions,
)
from pydanube_spark.tables.table import LakeTable

log = logging.getLogger(__name__)

PROPERTY = "danube.export"
"""The table property that stores its layout."""
CONFLICTS_MAX = 5
"""How often a round is tried if other writers commit to the table first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of an export."""

    url: str
    topic: str
    """A topic, a partition, or the name of a partitioned topic."""
    is_raw: bool = False
    """True if payloads are not decoded although the topic has a schema."""
    undecodable: UndecodablePolicy = UndecodablePolicy.FAIL
    partition_by: tuple[PartitionField, ...] = ()
    has_tail: bool = True
    """True if the tail is exported, too."""
    may_skip: bool = False
    """True if messages that retention has dropped are skipped."""
    round_bytes_max: int = 256 * MIB
    task_bytes_max: int = 32 * MIB
    file_bytes_max: int = FILE_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    """The progress of one topic or partition."""

    topic: str
    exported: int | None
    """The offset up to which it is in the table; None if it is not in the table."""
    end: int
    """The offset up to which the round exports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """The plan of the next round."""

    table: str
    columns: TableColumns
    new_columns: tuple[str, ...]
    """All columns if the table does not exist."""
    topics: tuple[TopicProgress, ...]
    waiting_count: int
    """The most messages that are not in the table yet."""
    round: ExportRound
    decoding: Decoding | None
    exported: Mapping[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of a round."""

    topics: tuple[TopicProgress, ...]
    message_count: int = 0
    dead_count: int = 0
    file_count: int = 0
    file_bytes: int = 0
    message_bytes: int = 0
    is_last: bool = True
    """True if the round reached the end of the topic, as of its plan."""


class TopicExporter:
    """Exports one topic to one table; has no state between rounds."""

    def __init__(
        self, read: ReadOptions, table: LakeTable, catalog: Catalog | None = None
    ) -> None:
        self._read = read
        self._table = table
        self._catalog = catalog or Catalog(read)
        self._access = SegmentAccess(read.read_through)

    def export_round(self) -> ExportReport:
        """
        Run one round.

        Durability: On return the messages are in the table, as durable as its storage.
        Cancellation: The table does not change.  Files may be left behind, which
            ``clean`` deletes.

        Raises:
            Conflict: Other writers committed first, CONFLICTS_MAX times.
            BrokerError: As for ``plan``, and the errors of tasks.
        """
        for _ in range(CONFLICTS_MAX - 1):
            try:
                return self._export()
            except Conflict as error:
                log.info("%s: retrying the round: %s", self._table.name, error)
        return self._export()

    def _export(self) -> ExportReport:
        raise NotImplementedError

    def _find_heads(self) -> Mapping[str, Head]:
        heads = topics.readable_heads(
            self._read, topics.find_heads(self._read, self._catalog)
        )
        if not heads:
            raise TopicNotFound(f"no such topic: {', '.join(self._read.topics)}")
        return heads

    def _find_layout(
        self, wanted: TableLayout, *, may_be_raw: bool = False
    ) -> TableLayout:
        """Return the layout that the table has or will have."""
        has = self._table.properties().get(PROPERTY, wanted.value)
        if may_be_raw and has == TableLayout.RAW.value:
            return TableLayout.RAW
        if has != wanted.value:
            raise InvalidRequest(
                f"{self._table.name} has the layout {has}, not {wanted.value}; export "
                "the topic to another table"
            )
        return wanted

    def _find_exported(self, heads: Mapping[str, Head]) -> dict[str, int | None]:
        """Return the exported offset of each topic."""
        prefixes = rounds.APP, rounds.TOPIC_ID
        apps = [prefix + topic for topic in heads for prefix in prefixes]
        found = self._table.app_versions(apps)
        for topic, head in heads.items():
            if found[rounds.TOPIC_ID + topic] not in (None, head.topic_id):
                raise InvalidRequest(
                    f"{self._table.name} has messages of an earlier topic {topic}, "
                    "which was deleted; export this one to another table"
                )
        return {topic: found[rounds.APP + topic] for topic in heads}

    def _find_range(
        self, topic: str, head: Head, exported: int | None
    ) -> TopicRange | None:
        base = head.base if exported is None else exported
        if base >= head.end:
            return None
        return topics.find_range(
            self._catalog,
            topic,
            base,
            Position(head.topic_id, head.end),
            fail_on_data_loss=self._read.fail_on_data_loss,
            is_new=exported is None,
        )


class Exporter(TopicExporter):
    """Exports the messages of a topic as rows of new files."""

    def __init__(
        self,
        options: ExportOptions,
        table: LakeTable,
        runner: Runner,
        *,
        dead_letters: LakeTable | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        if (options.undecodable is UndecodablePolicy.DEAD_LETTER) != (
            dead_letters is not None
        ):
            raise InvalidRequest(
                "a dead-letter table is needed for undecodable=dead-letter, and only "
                "for that"
            )
        read = ReadOptions(
            url=options.url,
            topics=(options.topic,),
            has_tail=options.has_tail,
            fail_on_data_loss=not options.may_skip,
        )
        super().__init__(read, table, catalog)
        self._options = options
        self._dead_letters = dead_letters
        self._runner = runner
        self._write = WriteOptions(
            merge_schema=True,
            partition_by=options.partition_by,
            file_bytes_max=options.file_bytes_max,
        )

    def plan(self) -> ExportPlan:
        """
        Plan the next round without changing anything.

        Raises:
            TopicNotFound: The topic does not exist.
            OffsetDropped: Messages are gone that are not in the table yet.
            InvalidRequest: The messages do not fit the table.
        """
        heads = self._find_heads()
        # Read after the heads, so that the subject has the versions of all messages.
        columns, decoding = self._find_columns(heads)
        exported = self._find_exported(heads)
        ranges = [
            found
            for topic, head in heads.items()
            if (found := self._find_range(topic, head, exported[topic])) is not None
        ]
        planned = rounds.limit(ranges, self._options.round_bytes_max)
        has = self._table.schema()
        schema = columns.table_schema()
        self._table.check(schema, self._write)
        ends = {each.topic: each.end for each in planned.ranges}
        return ExportPlan(
            table=self._table.name,
            columns=columns,
            new_columns=tuple(
                name for name in schema.names if has is None or name not in has.names
            ),
            topics=tuple(
                TopicProgress(
                    topic=topic,
                    exported=exported[topic],
                    end=ends.get(topic, exported[topic] or head.base),
                )
                for topic, head in heads.items()
            ),
            waiting_count=sum(each.end - each.base for each in ranges),
            round=planned,
            decoding=decoding,
            exported=exported,
        )

    def _export(self) -> ExportReport:
        plan = self.plan()
        if not plan.round.ranges and not plan.new_columns:
            return ExportReport(topics=plan.topics)
        rows, dead_letters = self._prepare(plan)
        jobs = self._jobs(plan, rows, dead_letters)
        outcomes = self._runner.outcomes(jobs, export)
        done = [each for each in outcomes if isinstance(each, ExportResult)]
        files = [file for each in done for file in each.files]
        dead = [file for each in done for file in each.dead_letter_files]
        try:
            raise_first(outcomes)
            # The dead letters come first: the table's offsets say what is done.
            if dead_letters is not None:
                dead_letters.commit(dead, plan.round.ranges)
            rows.commit(files, plan.round.ranges)
        except BaseException:
            rows.discard(files)
            if dead_letters is not None:
                dead_letters.discard(dead)
            raise
        return ExportReport(
            topics=tuple(replace(each, exported=each.end) for each in plan.topics),
            message_count=sum(each.message_count for each in done),
            dead_count=sum(file.row_count for file in dead),
            file_count=len(files),
            file_bytes=sum(file.byte_count for file in files),
            message_bytes=sum(each.byte_count for each in done),
            is_last=plan.round.is_last,
        )

    def _prepare(self, plan: ExportPlan) -> tuple[_Target, _Target | None]:
        """Return the table and the dead-letter table, ready for the files."""
        location = self._table.prepare(
            plan.columns.table_schema(),
            self._write,
            {PROPERTY: plan.columns.layout.value},
        )
        rows = _Target(self._table, location, plan.exported)
        table = self._dead_letters
        if table is None:
            return rows, None
        location = table.prepare(
            plan.columns.dead_letter_schema(), WriteOptions(merge_schema=True)
        )
        found = table.app_versions(rounds.APP + topic for topic in plan.exported)
        exported = {topic: found[rounds.APP + topic] for topic in plan.exported}
        return rows, _Target(table, location, exported)

    def _jobs(
        self, plan: ExportPlan, rows: _Target, dead_letters: _Target | None
    ) -> list[ExportJob]:
        scans = rounds.scans(
            plan.round,
            cores=self._runner.width,
            scan_bytes_max=self._options.task_bytes_max,
        )
        has_dead_letters = dead_letters.exported if dead_letters else {}
        name = uuid.uuid4().hex
        return [
            ExportJob(
                scan=scan,
                catalog=self._catalog,
                fail_on_data_loss=self._read.fail_on_data_loss,
                access=self._access,
                columns=plan.columns,
                decoding=plan.decoding,
                location=rows.location,
                file_bytes_max=self._options.file_bytes_max,
                name=f"{name}-{number}",
                dead_letter_location=dead_letters.location if dead_letters else None,
                dead_letters_from=has_dead_letters.get(scan.topic) or 0,
            )
            for number, scan in enumerate(scans)
        ]

    def _find_columns(
        self, heads: Mapping[str, Head]
    ) -> tuple[TableColumns, Decoding | None]:
        is_partitioned = list(heads) != [self._options.topic]
        is_raw = self._options.is_raw or None in {
            self._catalog.subject_of(topic) for topic in heads
        }
        layout = self._find_layout(
            TableLayout.RAW if is_raw else TableLayout.TYPED,
            # The table may have been created before the topic had a schema.
            may_be_raw=True,
        )
        if layout is TableLayout.RAW:
            return TableColumns(TableLayout.RAW, is_partitioned), None
        on_undecodable = (
            OnUndecodable.FAIL
            if self._options.undecodable is UndecodablePolicy.FAIL
            else OnUndecodable.NULL
        )
        values = DecodingPlanner(
            ValueOptions(on_undecodable=on_undecodable), self._catalog
        )
        reader_schema = values.plan(heads)
        columns = TableColumns(
            TableLayout.TYPED,
            is_partitioned,
            values.column_type(reader_schema),
            self._options.undecodable,
        )
        return columns, values.decoding(heads, reader_schema)


@dataclass(frozen=True, slots=True)
class _Target:
    """A table that is ready for the files of a round."""

    table: LakeTable
    location: TableLocation
    exported: Mapping[str, int | None]
    """The offset up to which it has each topic."""

    def commit(self, files: Sequence[DataFile], ranges: Sequence[TopicRange]) -> None:
        commit_ranges(self.table, files, ranges, self.exported)

    def discard(self, files: Sequence[DataFile]) -> None:
        self.table.discard(self.location, files)


def commit_ranges(
    table: LakeTable,
    files: Sequence[DataFile],
    ranges: Sequence[TopicRange],
    exported: Mapping[str, int | None],
) -> None:
    """
    Commit *files*, the messages of *ranges*, to *table*, which had *exported* before.

    Raises:
        Conflict: Another writer has changed the exported offsets.
    """
    transactions = rounds.app_transactions(ranges, exported)
    if transactions:
        note = {rounds.APP + each.topic: f"{each.base}-{each.end}" for each in ranges}
        table.commit(files, transactions, note=note)
