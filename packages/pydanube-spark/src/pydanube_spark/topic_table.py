"""
Topics as tables whose segments Spark reads with its own Parquet source.

``format("danube")`` reads segments in Python, and passes every row through Spark's path
for Python sources, which takes longer than reading.  Segments are Parquet files, so
``table`` leaves them to Spark: it finds them for one moment, protects them with a hold,
cuts the first and the last one at the wanted offsets, and reads only the tail in
Python.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from pydanube.model.descriptions import Segment
from pydanube.wire.files import segment_format
from pydanube_spark.reader import topics
from pydanube_spark.reader.catalog import Catalog, process_client
from pydanube_spark.reader.pure.bounds import split_name
from pydanube_spark.reader.pure.query_positions import resolve
from pydanube_spark.reader.pure.read_options import (
    BROKER_RETRY_S,
    Mode,
    ReadOptions,
    ReadThrough,
    parse_read_options,
)
from pydanube_spark.reader.pure.scans import SealedPart, SegmentRange, divide
from pydanube_spark.reader.scan_reader import SCHEMA, SCHEMA_DEFAULT
from pydanube_spark.segment_holds import hold_segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydanube.sync import Client

log = logging.getLogger(__name__)

PARTITIONS_MAX = 64
"""The most partitions that Spark reads itself: each is a table of its own to it."""

CHECKSUMS = "parquet.page.verify-checksum.enabled"
SPARK_SCHEMES = {"s3": "s3a", "gs": "gs"}
"""The schemes of Hadoop's file systems, by those of our stores."""

_GLOB = re.compile(r"[*?{}\[\]\\\\]")


class NotNative(Exception):
    """The reason why Spark cannot read the segments itself."""


def table(
    spark: SparkSession,
    topic: str,
    url: str | None = None,
    *,
    include_attributes: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """
    Return the messages that *topic* has now, as a table at the speed of Parquet.

    Spark reads the segments itself: only the columns and row groups that a query needs,
    with their checksums.  The tail is read from the broker.  The table is a snapshot:
    each query of it reads the same messages.  A hold keeps the segments for an hour
    after this call, and after the last job of this application; it needs the permission
    to manage the topic, and without it retention or compaction can end a query.

    Spark can read segments that this machine has, if tasks run here (a local master),
    or with ``readThrough=never`` wherever all executors have the broker's directory at
    the same path; and segments in S3 or Google Cloud Storage, if the session has
    Hadoop's file system for ``s3a`` or ``gs``, with its own credentials.  Otherwise,
    and for decoded values, the table is read as ``format("danube")`` does, and the log
    says why.

    Args:
        spark: The session.
        topic: A topic, a partitioned topic, or several with commas between them.
        url: The URL of the broker.
        include_attributes: Add the column ``attributes``.
        options: Further options of ``format("danube")`` for batches.

    Raises:
        InvalidConfig: An option is unknown or malformed.
        TopicNotFound: A topic does not exist.
        OffsetDropped: Messages between the wanted offsets are gone.
    """
    given = {name.lower(): value for name, value in (options or {}).items()}
    given["subscribe"] = topic
    if url is not None:
        given["url"] = url
    read = parse_read_options(given, Mode.BATCH)
    columns = read.columns or tuple(
        name
        for name in SCHEMA_DEFAULT.names
        if name != "attributes" or include_attributes
    )
    try:
        return _Snapshot(spark, read, given, columns).rows()
    except NotNative as reason:
        log.info("%s is read in Python: %s", topic, reason)
    if read.values is None:
        given["columns"] = ",".join(columns)
    return spark.read.format("danube").options(**given).load()


class _Snapshot:
    """Topics at one moment."""

    def __init__(
        self,
        spark: SparkSession,
        options: ReadOptions,
        given: Mapping[str, str],
        columns: Sequence[str],
    ) -> None:
        self._spark = spark
        self._options = options
        self._given = given
        self._columns = columns

    def rows(self) -> DataFrame:
        """
        Return the messages.

        Raises:
            NotNative: Spark cannot read the segments.
        """
        options = self._options
        self._check()
        catalog = Catalog(options)
        heads = topics.readable_heads(options, topics.require_heads(options, catalog))
        if len(heads) > PARTITIONS_MAX:
            raise NotNative(
                f"it has {len(heads)} partitions, and {PARTITIONS_MAX} is the most"
            )
        start = resolve(options.starting, heads, catalog.offset_at_time)
        end = resolve(options.ending, heads, catalog.offset_at_time)
        sealed = [name for name, head in heads.items() if head.sealed != head.base]
        # Segments are listed after the hold, because they may change before.
        hold_segments(self._spark, _client(options.url), options.url, sealed)
        ranges = topics.find_ranges(options, catalog, start, end, heads=heads)
        parts: dict[str, SealedPart] = {}
        for name, wanted in ranges.items():
            part = divide(wanted)
            if part is None:
                raise NotNative(f"{name} has messages between segments")
            parts[name] = part
        frames = [
            rows
            for name, part in parts.items()
            for rows in self._sealed(name, part.whole, part.cut)
        ]
        tails = {name: part.tail for name, part in parts.items() if part.tail}
        if tails or not frames:
            frames.append(self._tail(tails, [*parts] or [*heads]))
        return reduce(lambda one, other: one.unionAll(other), frames)

    def _check(self) -> None:
        if self._options.values is not None:
            raise NotNative("values are decoded in Python")
        if self._options.read_through is ReadThrough.ALWAYS:
            raise NotNative("the option readThrough is always")
        if not hasattr(self._spark, "_jvm"):
            raise NotNative("the session is one of Spark Connect")

    def _sealed(
        self, topic: str, whole: Sequence[Segment], cut: Sequence[SegmentRange]
    ) -> Iterator[DataFrame]:
        if whole:
            yield self._shaped(topic, self._files(whole))
        for each in cut:
            rows = self._files([each.segment])
            rows = rows.where(f"offset >= {each.base} AND offset < {each.end}")
            yield self._shaped(topic, rows)

    def _files(self, segments: Sequence[Segment]) -> DataFrame:
        urls = [self._url_of(each) for each in segments]
        reader = self._spark.read.schema(_SEGMENT).option(CHECKSUMS, "true")
        return reader.parquet(*urls)

    def _shaped(self, topic: str, rows: DataFrame) -> DataFrame:
        """Return the columns of the table."""
        base, number = split_name(topic)
        constants = {"topic": F.lit(base), "partition": F.lit(number)}
        return rows.select(
            *(
                constants.get(name, F.col(name)).cast(_type_of(name)).alias(name)
                for name in self._columns
            )
        )

    def _tail(
        self, tails: Mapping[str, tuple[int, int]], names: Sequence[str]
    ) -> DataFrame:
        """Return the messages that are in no segment, which may be none."""
        bounds = tails or dict.fromkeys(names[:1], (0, 0))
        start = {name: base for name, (base, _) in bounds.items()}
        end = {name: stop for name, (_, stop) in bounds.items()}
        options = {
            name: value
            for name, value in self._given.items()
            if not name.startswith(("starting", "ending", "filter.", "tail"))
        }
        options |= {
            "subscribe": ",".join(bounds),
            "startingoffsets": json.dumps(start),
            "endingoffsets": json.dumps(end),
            "columns": ",".join(self._columns),
        }
        return self._spark.read.format("danube").options(**options).load()

    def _url_of(self, segment: Segment) -> str:
        """
        Return the URL at which Spark reads *segment*.

        Raises:
            NotNative: It cannot.
        """
        parsed = urlsplit(segment.url)
        if parsed.scheme == "file" and os.access(unquote(parsed.path), os.R_OK):
            if not self._has_files:
                raise NotNative(
                    "executors may not have the files of the broker; if they do, set "
                    "readThrough to never"
                )
            if _GLOB.search(segment.url):
                raise NotNative(f"Spark takes {segment.url} as a pattern")
            return segment.url
        if not segment.remote_url:
            raise NotNative(f"this process cannot read {segment.url}")
        scheme, _, rest = segment.remote_url.partition("://")
        known = SPARK_SCHEMES.get(scheme)
        if known is None or not self._has_file_system(known):
            raise NotNative(
                f"the session has no file system for {scheme}://; add Hadoop's, such "
                "as the package hadoop-aws for s3a"
            )
        return f"{known}://{rest}"

    @property
    def _has_files(self) -> bool:
        """Whether tasks can read the local files of this machine."""
        never = self._options.read_through is ReadThrough.NEVER
        return never or self._spark.sparkContext.master.startswith("local")

    def _has_file_system(self, scheme: str) -> bool:
        jvm: Any = self._spark._jvm  # noqa: SLF001
        configuration = self._spark._jsc.hadoopConfiguration()  # noqa: SLF001
        try:
            jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
                scheme, configuration
            )
        except Exception:  # noqa: BLE001  # Py4J has an error for each error of Java.
            return False
        return True


def _client(url: str) -> Client:
    return process_client(url, retry_s=BROKER_RETRY_S)


def _type_of(name: str) -> Any:
    return from_arrow_type(SCHEMA.field(name).type)


_SEGMENT = StructType(
    [
        StructField(field.name, from_arrow_type(field.type))
        for field in segment_format.SCHEMA
    ]
)
"""The columns of segments, so that Spark opens none to find out."""
