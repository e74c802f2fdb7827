"""
Keeps a table up to date with a topic, round by round.

Each round asks the table where it stands, the broker what there is, lets tasks write
files, and adds these to the table together with the new place, in one transaction.
Whatever is killed at any point, the next round begins where the table stands; two
exports at once get in each other's way and do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import Conflict, InvalidRequest, TopicNotFound
from pydanube.reader import topics
from pydanube.reader.catalog import broker_catalog
from pydanube.reader.decoding_planner import DecodingPlanner
from pydanube.reader.offsets import Position
from pydanube.reader.read_options import OnUndecodable, ReadOptions, ValueOptions
from pydanube.tables.export import rounds
from pydanube.tables.export.table_columns import (
    TableColumns,
    TableLayout,
    UndecodablePolicy,
)
from pydanube.tables.export.tasks import (
    ExportFailure,
    ExportJob,
    ExportOutcome,
    ExportResult,
    export,
)
from pydanube.tables.table_options import FILE_BYTES_MAX, MIB, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pydanube.reader.catalog import Catalog
    from pydanube.reader.decoding import Decoding
    from pydanube.reader.offsets import Head
    from pydanube.reader.scans import TopicRange
    from pydanube.tables.data_files import DataFile, TableLocation
    from pydanube.tables.export.rounds import ExportRound
    from pydanube.tables.table import LakeTable
    from pydanube.tables.table_options import PartitionField

log = logging.getLogger(__name__)

PROPERTY = "danube.export"
"""The table's property that says which layout it has."""
PREFIXES = (rounds.APP, rounds.TOPIC_ID)
CONFLICTS_MAX = 5
"""So often a round is done again because somebody else wrote to the table."""

ExportFunction = Callable[[ExportJob], ExportOutcome]
Runner = Callable[[Sequence[ExportJob], ExportFunction], list[ExportOutcome]]
"""What carries out jobs: Spark, or threads of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What to export, and how."""

    url: str
    topic: str
    """A topic, a partition, or the name of a topic with partitions."""
    is_raw: bool = False
    """Whether payloads are left as they are although the topic has a schema."""
    undecodable: UndecodablePolicy = UndecodablePolicy.FAIL
    partition_by: tuple[PartitionField, ...] = ()
    has_tail: bool = True
    """Whether what is not sealed yet is exported, too."""
    may_skip: bool = False
    """Whether messages that retention has dropped are passed over."""
    round_bytes_max: int = 256 * MIB
    task_bytes_max: int = 32 * MIB
    file_bytes_max: int = FILE_BYTES_MAX
    cores: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    """Where one topic or partition is."""

    topic: str
    exported: int | None
    """Up to which offset it is in the table; None if it is not known there."""
    end: int
    """Up to which offset a round would export it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """What the next round would do, and what is left after it."""

    table: str
    layout: TableLayout
    columns: pa.Schema
    new_columns: tuple[str, ...]
    """All of them if the table does not exist."""
    topics: tuple[TopicProgress, ...]
    waiting_count: int
    """How many messages are not in the table at the moment, at most."""
    round: ExportRound
    decoding: Decoding | None
    heads: Mapping[str, Head]
    exported: Mapping[str, int | None]
    table_columns: TableColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What a round has done."""

    topics: tuple[TopicProgress, ...]
    message_count: int
    dead_count: int
    file_count: int
    file_bytes: int
    message_bytes: int
    is_last: bool
    """Whether there was nothing more when it was planned."""

    @classmethod
    def of_nothing(cls, topics: tuple[TopicProgress, ...]) -> ExportReport:
        """The report of a round that had nothing to do."""
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
    """One export; keeps nothing between rounds but what it was told."""

    def __init__(
        self,
        options: ExportOptions,
        table: LakeTable,
        run: Runner,
        work: ExportFunction = export,
        *,
        dead_letters: LakeTable | None = None,
        connect: Callable[[ReadOptions], Catalog] = broker_catalog,
        unique: Callable[[], str],
    ) -> None:
        if (options.undecodable is UndecodablePolicy.DEAD_LETTER) != (
            dead_letters is not None
        ):
            raise InvalidRequest("a table for dead letters and that way go together")
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
        What the next round would do; changes nothing.

        Raises:
            TopicNotFound: There is no such topic.
            OffsetDropped: Messages are gone that are not in the table yet.
            InvalidRequest: The messages do not fit into the table.
        """
        heads = self._find_heads()
        # After the heads: whatever they span was written with a version that is there.
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
        Bring the table one round further.

        Durability: On return the messages are in the table as its storage has it.
        Cancellation: What is cut off counts for nothing; its files may be left
            behind, for ``clean`` to find.

        Raises:
            Conflict: Others wrote to the table, again and again.
            BrokerError: As for ``plan``, and what the tasks raise.
        """
        for _ in range(CONFLICTS_MAX - 1):
            try:
                return self._export(self.plan())
            except Conflict as error:
                log.info("%s: once more: %s", self._table.name, error)
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
        """The dead letters first: where the other table stands says what is done."""
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
        """What the table is, or what it will be."""
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
            # It was begun before the topic had a schema.
            return TableLayout.RAW
        raise InvalidRequest(
            f"{self._table.name} is a {has} table of a topic; a {wanted.value} one "
            "must be another"
        )

    def _find_exported(self, heads: Mapping[str, Head]) -> dict[str, int | None]:
        """Where each topic stands in the table."""
        apps = [prefix + topic for topic in heads for prefix in PREFIXES]
        found = self._table.app_versions(apps)
        for topic, head in heads.items():
            if found[rounds.TOPIC_ID + topic] not in (None, head.topic_id):
                raise InvalidRequest(
                    f"{self._table.name} holds messages of an earlier {topic}, which "
                    "was deleted; export this one to another table"
                )
        return {topic: found[rounds.APP + topic] for topic in heads}

    def _find_range(
        self, topic: str, head: Head, exported: int | None
    ) -> TopicRange | None:
        base = head.base if exported is None else exported
        if base >= head.end:
            return None
        return topics.find_range(
            self._read,
            self._catalog,
            topic,
            base,
            Position(head.topic_id, head.end),
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
        if isinstance(each, ExportFailure):
            raise each.error


def _discard(
    table: LakeTable | None, place: TableLocation | None, files: Sequence[DataFile]
) -> None:
    if table is None or place is None or not files:
        return
    for file in table.unreferenced(files):
        place.delete(file.path)


def spark_runner(spark: Any) -> Runner:
    """What lets Spark carry out jobs."""
    from pydanube.spark.jobs import run_jobs  # noqa: PLC0415  # Only where it is used.

    return lambda jobs, work: run_jobs(spark, jobs, work)


def thread_runner(count: int) -> Runner:
    """What carries out jobs in *count* threads of this process."""
    from pydanube.spark.jobs import run_in_threads  # noqa: PLC0415

    return lambda jobs, work: run_in_threads(count, jobs, work)
