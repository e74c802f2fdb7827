"""
The exporter, which keeps a table up to date with a topic in rounds.

Each round reads the exported offsets from the table and the topic's end from the
broker.  Its tasks write files, and one transaction adds the files and the new offsets
to the table.  If a process is killed at any point, the next round continues at the
offsets in the table.  Concurrent exports conflict, but never damage the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import (
    BrokerError,
    Conflict,
    InvalidRequest,
    TopicNotFound,
)
from pydanube.reader import topics
from pydanube.reader.catalog import Catalog
from pydanube.reader.decoding_planner import DecodingPlanner
from pydanube.reader.query_positions import Position
from pydanube.reader.read_options import OnUndecodable, ReadOptions, ValueOptions
from pydanube.tables.export import rounds
from pydanube.tables.export.table_columns import TableColumns, TableLayout
from pydanube.tables.export.tasks import (
    ExportJob,
    ExportOutcome,
    ExportResult,
    export,
)
from pydanube.tables.table_options import (
    FILE_BYTES_MAX,
    MIB,
    UndecodablePolicy,
    WriteOptions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pydanube.reader.decoding import Decoding
    from pydanube.reader.query_positions import Head
    from pydanube.reader.scans import TopicRange
    from pydanube.tables.data_files import DataFile, TableLocation
    from pydanube.tables.export.rounds import ExportRound
    from pydanube.tables.table import LakeTable
    from pydanube.tables.table_options import PartitionField

log = logging.getLogger(__name__)

PROPERTY = "danube.export"
"""The table property that stores its layout."""
PREFIXES = (rounds.APP, rounds.TOPIC_ID)
CONFLICTS_MAX = 5
"""How often a round is tried if other writers commit to the table first."""

ExportFunction = Callable[[ExportJob], ExportOutcome]
Runner = Callable[[Sequence[ExportJob], ExportFunction], list[ExportOutcome]]
"""Runs jobs, as Spark tasks or in threads of this process."""


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
    cores: int = 2


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
    layout: TableLayout
    columns: pa.Schema
    new_columns: tuple[str, ...]
    """All columns if the table does not exist."""
    topics: tuple[TopicProgress, ...]
    waiting_count: int
    """The most messages that are not in the table yet."""
    round: ExportRound
    decoding: Decoding | None
    heads: Mapping[str, Head]
    exported: Mapping[str, int | None]
    table_columns: TableColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of a round."""

    topics: tuple[TopicProgress, ...]
    message_count: int
    dead_count: int
    file_count: int
    file_bytes: int
    message_bytes: int
    is_last: bool
    """True if the round reached the end of the topic, as of its plan."""

    @classmethod
    def of_nothing(cls, topics: tuple[TopicProgress, ...]) -> ExportReport:
        """Return the report of a round without new messages."""
        return cls(
            topics=topics,
            message_count=0,
            dead_count=0,
            file_count=0,
            file_bytes=0,
            message_bytes=0,
            is_last=True,
        )


class Exporter:
    """Exports one topic to one table; has no state between rounds."""

    def __init__(
        self,
        options: ExportOptions,
        table: LakeTable,
        run: Runner,
        work: ExportFunction = export,
        *,
        dead_letters: LakeTable | None = None,
        connect: Callable[[ReadOptions], Catalog] = Catalog,
        unique: Callable[[], str],
    ) -> None:
        if (options.undecodable is UndecodablePolicy.DEAD_LETTER) != (
            dead_letters is not None
        ):
            raise InvalidRequest(
                "a dead-letter table is needed for undecodable=dead-letter, and only "
                "for that"
            )
        self._options = options
        self._table = table
        self._dead_letters = dead_letters
        self._run = run
        self._work = work
        self._unique = unique
        self._read = ReadOptions(
            url=options.url,
            topics=(options.topic,),
            has_tail=options.has_tail,
            fail_on_data_loss=not options.may_skip,
        )
        self._catalog = connect(self._read)

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
        table_columns, decoding = self._find_columns(heads)
        exported = self._find_exported(heads)
        ranges = [
            found
            for topic, head in heads.items()
            if (found := self._find_range(topic, head, exported[topic])) is not None
        ]
        planned = rounds.limit(ranges, self._options.round_bytes_max)
        has = self._table.schema()
        columns = table_columns.table_schema()
        self._table.check(columns, self._write_options())
        ends = {each.topic: each.end for each in planned.ranges}
        return ExportPlan(
            table=self._table.name,
            layout=table_columns.layout,
            columns=columns,
            new_columns=tuple(
                name for name in columns.names if has is None or name not in has.names
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
            heads=heads,
            exported=exported,
            table_columns=table_columns,
        )

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
                return self._export(self.plan())
            except Conflict as error:
                log.info("%s: retrying the round: %s", self._table.name, error)
        return self._export(self.plan())

    def _export(self, plan: ExportPlan) -> ExportReport:
        if not plan.round.ranges and not plan.new_columns:
            return ExportReport.of_nothing(plan.topics)
        place = self._table.prepare(
            plan.columns, self._write_options(), {PROPERTY: plan.layout.value}
        )
        dead_letter_location, dead_letters_exported = self._prepare_dead_letters(plan)
        jobs = self._jobs(plan, place, dead_letter_location, dead_letters_exported)
        answers = self._run(jobs, self._work) if jobs else []
        done = [each for each in answers if isinstance(each, ExportResult)]
        files = [file for each in done for file in each.files]
        dead = [file for each in done for file in each.dead_letter_files]
        try:
            _raise_first(answers)
            self._commit(plan, files, dead, dead_letters_exported)
        except BaseException:
            _discard(self._table, place, files)
            _discard(self._dead_letters, dead_letter_location, dead)
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

    def _commit(
        self,
        plan: ExportPlan,
        files: Sequence[DataFile],
        dead: Sequence[DataFile],
        dead_letters_exported: Mapping[str, int | None],
    ) -> None:
        """Commit the dead letters first: the table's offsets say what is done."""
        ranges = plan.round.ranges
        if not ranges:
            return
        note = {rounds.APP + each.topic: f"{each.base}-{each.end}" for each in ranges}
        transactions = (
            rounds.app_transactions(ranges, dead_letters_exported)
            if dead_letters_exported
            else []
        )
        if self._dead_letters is not None and transactions:
            self._dead_letters.commit(dead, transactions, note=note)
        self._table.commit(
            files, rounds.app_transactions(ranges, plan.exported), note=note
        )

    def _jobs(
        self,
        plan: ExportPlan,
        place: TableLocation,
        dead_letter_location: TableLocation | None,
        dead_letters_exported: Mapping[str, int | None],
    ) -> list[ExportJob]:
        scans = rounds.scans(
            plan.round,
            cores=self._options.cores,
            scan_bytes_max=self._options.task_bytes_max,
        )
        name = self._unique()
        return [
            ExportJob(
                scan=scan,
                read=self._read,
                columns=plan.table_columns,
                decoding=plan.decoding,
                place=place,
                file_bytes_max=self._options.file_bytes_max,
                name=f"{name}-{number}",
                dead_letter_location=dead_letter_location,
                dead_letters_from=dead_letters_exported.get(scan.topic) or 0,
            )
            for number, scan in enumerate(scans)
        ]

    def _find_heads(self) -> dict[str, Head]:
        heads = topics.readable_heads(
            self._read, topics.find_heads(self._read, self._catalog)
        )
        if not heads:
            raise TopicNotFound(f"no such topic: {self._options.topic}")
        return heads

    def _find_columns(
        self, heads: Mapping[str, Head]
    ) -> tuple[TableColumns, Decoding | None]:
        is_partitioned = list(heads) != [self._options.topic]
        layout = self._find_layout(heads)
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

    def _find_layout(self, heads: Mapping[str, Head]) -> TableLayout:
        """Return the layout that the table has or will have."""
        subjects = {self._catalog.subject_of(topic) for topic in heads}
        wanted = (
            TableLayout.RAW
            if self._options.is_raw or None in subjects
            else TableLayout.TYPED
        )
        has = self._table.properties().get(PROPERTY)
        if has is None or has == wanted.value:
            return wanted
        if has == TableLayout.RAW.value and not self._options.is_raw:
            # The table was created before the topic had a schema.
            return TableLayout.RAW
        raise InvalidRequest(
            f"{self._table.name} has the layout {has}, not {wanted.value}; export the "
            "topic to another table"
        )

    def _find_exported(self, heads: Mapping[str, Head]) -> dict[str, int | None]:
        """Return the exported offset of each topic."""
        apps = [prefix + topic for topic in heads for prefix in PREFIXES]
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

    def _prepare_dead_letters(
        self, plan: ExportPlan
    ) -> tuple[TableLocation | None, dict[str, int | None]]:
        if self._dead_letters is None:
            return None, {}
        place = self._dead_letters.prepare(
            plan.table_columns.dead_letter_schema(), WriteOptions(merge_schema=True)
        )
        apps = {rounds.APP + topic: topic for topic in plan.heads}
        found = self._dead_letters.app_versions(apps)
        return place, {topic: found[app] for app, topic in apps.items()}

    def _write_options(self) -> WriteOptions:
        return WriteOptions(
            merge_schema=True,
            partition_by=self._options.partition_by,
            file_bytes_max=self._options.file_bytes_max,
        )


def _raise_first(answers: Sequence[ExportOutcome]) -> None:
    for each in answers:
        if isinstance(each, BrokerError):
            raise each


def _discard(
    table: LakeTable | None, place: TableLocation | None, files: Sequence[DataFile]
) -> None:
    if table is None or place is None or not files:
        return
    for file in table.unreferenced(files):
        place.delete(file.path)


def spark_runner(spark: Any) -> Runner:
    """Return a runner that runs jobs as Spark tasks."""
    from pydanube.spark.jobs import run_jobs  # noqa: PLC0415  # It is optional.

    return lambda jobs, work: run_jobs(spark, jobs, work)


def thread_runner(count: int) -> Runner:
    """Return a runner that runs jobs in *count* threads of this process."""
    from pydanube.spark.jobs import run_in_threads  # noqa: PLC0415

    return lambda jobs, work: run_in_threads(count, jobs, work)
