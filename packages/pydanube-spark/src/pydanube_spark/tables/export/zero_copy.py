"""
Zero-copy export: the segments of a topic become data files of an Iceberg table.

A retention hold on the topic first protects its segments from retention and compaction.
Then each segment is registered in the table at its present location: in the remote
object store if it is uploaded, otherwise in the broker's directory.  The hold also
keeps local files from being evicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydanube_spark.reader.catalog import process_client
from pydanube_spark.reader.pure.bounds import split_name
from pydanube_spark.reader.pure.query_positions import Head
from pydanube_spark.reader.pure.read_options import BROKER_RETRY_S, ReadOptions
from pydanube_spark.reader.pure.scans import TopicRange
from pydanube_spark.reader.segment_files import open_existing_segment
from pydanube_spark.tables.data_files import DataFile
from pydanube_spark.tables.export.exporter import (
    PROPERTY,
    ExportReport,
    TopicExporter,
    TopicProgress,
    commit_ranges,
)
from pydanube_spark.tables.export.table_columns import (
    PARTITION,
    TableColumns,
    TableLayout,
)
from pydanube_spark.tables.iceberg_table import ExternalFile, IcebergLakeTable
from pydanube_spark.tables.pure.table_options import PartitionField, WriteOptions

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


class ZeroCopyExporter(TopicExporter):
    """Exports the messages of a topic by registering its segments."""

    _table: IcebergLakeTable

    def __init__(self, url: str, topic: str, table: IcebergLakeTable) -> None:
        super().__init__(ReadOptions(url=url, topics=(topic,), has_tail=False), table)
        self._topic = topic

    def plan(self) -> list[TopicRange]:
        """
        Return the segments that the next round would register.

        Raises:
            TopicNotFound: The topic does not exist.
            OffsetDropped: Messages are gone that are not in the table yet.
            InvalidRequest: The table has another layout or another topic.
        """
        return self._plan()[0]

    def _plan(self) -> tuple[list[TopicRange], dict[str, int | None]]:
        """Return the new segments, and the exported offset of each topic."""
        self._find_layout(TableLayout.ZERO_COPY)
        heads = self._find_heads()
        exported = self._find_exported(heads)
        ranges = [
            self._new_segments(topic, head, exported[topic])
            for topic, head in heads.items()
        ]
        return ranges, exported

    def _new_segments(self, topic: str, head: Head, exported: int | None) -> TopicRange:
        """Return the segments that continue the table without a gap."""
        base = head.base if exported is None else exported
        found = self._find_range(topic, head, exported)
        if found is None:
            return TopicRange(topic, head.topic_id, base, base)
        by_base = {each.base: each for each in found.segments}
        end = found.base
        segments = []
        while end in by_base:
            segments.append(by_base[end])
            end = segments[-1].end
        return replace(found, end=end, segments=tuple(segments))

    def _export(self) -> ExportReport:
        # The hold comes first, so that planned segments are not dropped.
        process_client(self._read.url, retry_s=BROKER_RETRY_S).topics.hold(
            self._topic,
            HOLD + self._table.name,
            "its segments are files of the table; run 'danube lakehouse release' after "
            "dropping the table",
        )
        planned, exported = self._plan()
        files = self._register([each for each in planned if each.segments], exported)
        return ExportReport(
            topics=tuple(
                TopicProgress(topic=each.topic, exported=each.end, end=each.end)
                for each in planned
            ),
            message_count=sum(
                segment.count for each in planned for segment in each.segments
            ),
            file_count=len(files),
            file_bytes=sum(file.byte_count for file in files),
        )

    def _register(
        self, ranges: Sequence[TopicRange], exported: Mapping[str, int | None]
    ) -> list[DataFile]:
        """
        Add the segments of *ranges* to the table, and return them as its files.

        Raises:
            CorruptSegment: A segment is damaged, missing or unreadable.
        """
        if not ranges:
            return []
        is_partitioned = list(exported) != [self._topic]
        files = []
        for each in ranges:
            partition = (split_name(each.topic)[1],) if is_partitioned else ()
            for segment in each.segments:
                # The table copies the statistics of the footer.
                with open_existing_segment(each.topic, segment) as file:
                    footer = file.parquet.metadata
                files.append(
                    ExternalFile(
                        # Every engine can read the remote copy, and it is not evicted.
                        url=segment.remote_url or segment.url,
                        partition=partition,
                        footer=footer,
                        byte_count=segment.byte_count,
                    )
                )
        described = self._table.describe_external_files(
            TableColumns(TableLayout.ZERO_COPY, is_partitioned).table_schema(),
            WriteOptions(
                partition_by=(PartitionField(PARTITION),) if is_partitioned else ()
            ),
            PROPERTIES,
            files,
        )
        commit_ranges(self._table, described, ranges, exported)
        return described

    def release(self) -> None:
        """
        Release the retention hold.

        Retention and compaction may then delete files of the table: drop it first.
        """
        client = process_client(self._read.url, retry_s=BROKER_RETRY_S)
        client.topics.release(self._topic, HOLD + self._table.name)
