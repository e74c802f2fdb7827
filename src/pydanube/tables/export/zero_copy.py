"""
Zero-copy export: the segments of a topic become data files of an Iceberg table.

A retention hold on the topic first protects its segments from retention and compaction.
Then each segment is registered in the table at its present location.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import Conflict, InvalidRequest, TopicNotFound
from pydanube.reader.bounds import split_name
from pydanube.reader.catalog import Catalog, process_client
from pydanube.reader.read_options import ReadOptions
from pydanube.reader.scans import TopicRange
from pydanube.reader.segment_files import open_existing_segment
from pydanube.tables.export import rounds
from pydanube.tables.export.exporter import (
    CONFLICTS_MAX,
    PROPERTY,
    ExportReport,
    TopicProgress,
)
from pydanube.tables.export.table_columns import PARTITION, TableColumns, TableLayout
from pydanube.tables.table_options import PartitionField, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydanube.model.descriptions import Segment
    from pydanube.sync import Client
    from pydanube.tables.iceberg_table import IcebergLakeTable

log = logging.getLogger(__name__)

HOLD = "lakehouse "
"""The prefix of the name of the retention hold, before the name of the table."""

WITHOUT_STATISTICS = (
    "payload",
    "attributes.key",
    "attributes.value",
    "deliver_at",
    "expires_at",
)

PROPERTIES = {
    PROPERTY: TableLayout.ZERO_COPY.value,
    # The files belong to the topic, so expiring snapshots must not delete them.
    "gc.enabled": "false",
    # Segments have no statistics of these columns.
    **{f"write.metadata.metrics.column.{name}": "none" for name in WITHOUT_STATISTICS},
}


@dataclass(frozen=True, slots=True)
class TopicSegments:
    """The segments of one topic or partition that the table does not have yet."""

    found: TopicRange
    message_count: int


class ZeroCopyExporter:
    """Exports one topic to one table by registering its segments."""

    def __init__(
        self,
        url: str,
        topic: str,
        table: IcebergLakeTable,
        *,
        connect: Callable[[str], Client] = process_client,
    ) -> None:
        self._url = url
        self._topic = topic
        self._table = table
        self._connect = connect
        self._catalog = Catalog(ReadOptions(url=url, topics=(topic,)))

    def plan(self) -> list[TopicSegments]:
        """
        Return the segments that the next round would register.

        Raises:
            TopicNotFound: The topic does not exist.
            InvalidRequest: The table has another layout or another topic.
        """
        has = self._table.properties().get(PROPERTY, TableLayout.ZERO_COPY.value)
        if has != TableLayout.ZERO_COPY.value:
            raise InvalidRequest(
                f"{self._table.name} has the layout {has}, not zero-copy; export the "
                "topic to another table"
            )
        names = self._names()
        exported = self._table.app_versions(rounds.APP + name for name in names)
        return [self._find(name, exported[rounds.APP + name]) for name in names]

    def export_round(self) -> ExportReport:
        """
        Register the segments that the table does not have yet.

        Durability: On return the segments are in the table, as durable as its storage,
            and the topic has a retention hold.

        Raises:
            Conflict: Other writers committed first, CONFLICTS_MAX times.
            CorruptSegment: A segment's footer is damaged, or the segment is missing.
            BrokerError: As for ``plan``.
        """
        for _ in range(CONFLICTS_MAX - 1):
            try:
                return self._register()
            except Conflict as error:
                log.info("%s: retrying the round: %s", self._table.name, error)
        return self._register()

    def _register(self) -> ExportReport:
        # The hold comes first, so that planned segments are not dropped.
        self._connect(self._url).hold_topic(
            self._topic,
            HOLD + self._table.name,
            "its segments are files of the table; run 'danube lakehouse release' after "
            "dropping the table",
        )
        names = self._names()
        planned = self.plan()
        ranges = [each.found for each in planned if each.found.segments]
        exported = self._table.app_versions(rounds.APP + name for name in names)
        files = []
        if ranges:
            _check_footers(ranges)
            columns = TableColumns(TableLayout.ZERO_COPY, self._is_partitioned(names))
            files = self._table.describe_external_files(
                columns.table_schema(),
                WriteOptions(
                    partition_by=(PartitionField(PARTITION),)
                    if columns.is_partitioned
                    else ()
                ),
                PROPERTIES,
                [
                    (
                        segment.url,
                        (split_name(each.topic)[1],) if columns.is_partitioned else (),
                    )
                    for each in ranges
                    for segment in each.segments
                ],
            )
            self._table.commit(
                files,
                rounds.app_transactions(
                    ranges, {name: exported[rounds.APP + name] for name in names}
                ),
                note={
                    rounds.APP + each.topic: f"{each.base}-{each.end}"
                    for each in ranges
                },
            )
        return ExportReport(
            topics=tuple(
                TopicProgress(
                    topic=each.found.topic, exported=each.found.end, end=each.found.end
                )
                for each in planned
            ),
            message_count=sum(each.message_count for each in planned),
            dead_count=0,
            file_count=len(files),
            file_bytes=sum(file.byte_count for file in files),
            message_bytes=0,
            is_last=True,
        )

    def release(self) -> None:
        """
        Release the retention hold.

        Retention and compaction may then delete files of the table: drop it first.
        """
        self._connect(self._url).release_topic(self._topic, HOLD + self._table.name)

    def _names(self) -> list[str]:
        names = self._catalog.partitions(self._topic)
        if not names:
            raise TopicNotFound(f"no such topic: {self._topic}")
        return names

    def _is_partitioned(self, names: list[str]) -> bool:
        return names != [self._topic]

    def _find(self, topic: str, exported: int | None) -> TopicSegments:
        head = self._catalog.head(topic)
        known = self._table.app_versions([rounds.TOPIC_ID + topic])
        if known[rounds.TOPIC_ID + topic] not in (None, head.topic_id):
            raise InvalidRequest(
                f"{self._table.name} has segments of an earlier topic {topic}, which "
                "was deleted; export this one to another table"
            )
        base = head.base if exported is None else exported
        _, layout = self._catalog.layout(topic, base, head.end)
        segments = contiguous_segments(
            base, {each.base: each for each in layout.segments}
        )
        end = segments[-1].end if segments else base
        return TopicSegments(
            TopicRange(topic, head.topic_id, base, end, segments),
            sum(each.count for each in segments),
        )


def _check_footers(ranges: Sequence[TopicRange]) -> None:
    """
    Verify the footers of segments, whose statistics the table copies.

    Raises:
        CorruptSegment: A segment is damaged, missing or unreadable.
    """
    for each in ranges:
        for segment in each.segments:
            with open_existing_segment(each.topic, segment):
                pass


def contiguous_segments(
    base: int, by_base: Mapping[int, Segment]
) -> tuple[Segment, ...]:
    """Return the segments that follow *base* without a gap."""
    found: list[Segment] = []
    while base in by_base:
        found.append(by_base[base])
        base = found[-1].end
    return tuple(found)
