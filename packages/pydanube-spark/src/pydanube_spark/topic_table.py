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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pydanube.model.descriptions import Segment
from pydanube.model.errors import InvalidConfig
from pydanube.wire.files import segment_format
from pydanube_spark.pure.hadoop_files import (
    ENDPOINT,
    LOCAL,
    hadoop_url,
    missing_access,
    missing_package,
    opened_otherwise,
    setting_of_session,
    store_settings,
)
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
from pydanube_spark.reader.pure.scans import SealedPart, TopicRange, divide
from pydanube_spark.reader.scan_reader import SCHEMA, SCHEMA_DEFAULT, TEXT_COLUMNS
from pydanube_spark.segment_holds import hold_segments

log = logging.getLogger(__name__)

PARTITIONS_MAX = 1000
"""The most partitions that Spark reads itself: each needs a hold of its own."""

READING = {
    "parquet.page.verify-checksum.enabled": "true",
    # A session may leave out what it cannot read, and its tables would lack rows.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""How Spark reads segments, whatever the settings of the session are."""

_DIVIDING = ("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition")
"""The options for the tasks of the source in Python."""
_SELECTING = (
    "subscribe",
    "assign",
    "starting",
    "ending",
    "filter.",
    "tail",
    "columns",
    "include",
)
"""How the options begin that say what is read, in lower case."""

_SOURCES = "org.apache.spark.sql.execution.datasources."
"""The package of Spark's sources of files."""
_VALUES = "danube.values"
"""The option that distinguishes relations by the values of their directories."""
KNOWN_FILES = f"""
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

public class KnownFiles extends {_SOURCES}FileStatusCache {{
    private final java.util.HashMap files = new java.util.HashMap();

    public scala.Option getLeafFiles(Path path) {{
        return scala.Option.apply(files.get(path));
    }}

    public void putLeafFiles(Path path, FileStatus[] found) {{
        files.put(path, found);
    }}

    public void invalidateAll() {{
    }}

    public Path[] putAll(String lines) {{
        String[] given = lines.split("\\n");
        Path[] paths = new Path[given.length];
        for (int at = 0; at < given.length; at++) {{
            int space = given[at].indexOf(' ');
            long size = Long.parseLong(given[at].substring(0, space));
            paths[at] = new Path(given[at].substring(space + 1));
            FileStatus found = new FileStatus(size, false, 1, size, 0, paths[at]);
            putLeafFiles(paths[at], new FileStatus[] {{found}});
        }}
        return paths;
    }}
}}
"""
"""A cache of files in Java that keeps all it is given, lines of sizes and paths."""
_BASE = "_danube_base"
_END = "_danube_end"


class NotNative(Exception):
    """The reason why Spark cannot read the segments itself."""


class NoFiles(NotNative):
    """The session has no access to the files; other settings may give it."""


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
    to manage the topic, and without it merging, retention or compaction can end a
    query.

    Spark can read segments that this machine has, if tasks run here (a local master),
    or with ``readThrough=never`` wherever all executors have the broker's directory at
    the same path; and segments in S3 or Google Cloud Storage, if the session has
    Hadoop's file system for ``s3a`` or ``gs``, with its own credentials.  The broker
    tells where an S3 bucket is, unless the session has an endpoint for it.  Otherwise,
    and for decoded values, the table is read as ``format("danube")`` does, and the log
    says why, as a warning if other settings would help.

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
    if include_attributes:
        given["includeattributes"] = "true"
    return read_topics(spark, given)


def read_topics(
    spark: SparkSession,
    given: Mapping[str, str],
    schema: str | None = None,
    *,
    is_held: bool = False,
) -> DataFrame:
    """
    Return the messages that ``format("danube")`` reads as a batch with options *given*.

    Spark reads the segments itself if it can; see ``table``.  *schema* has the columns,
    as ``spark.read.schema`` has.  With *is_held*, segments that cannot be held are read
    in Python, which notices if they are replaced.

    Raises:
        InvalidConfig, TopicNotFound, OffsetDropped: As for ``table``.
    """
    given = {name.lower(): value for name, value in given.items()}
    options = parse_read_options(given, Mode.BATCH)
    try:
        return _Snapshot(spark, options, given, schema, is_held=is_held).rows()
    except NoFiles as reason:
        log.warning("%s is read in Python, which is slower: %s", _named(given), reason)
    except NotNative as reason:
        log.info("%s is read in Python: %s", _named(given), reason)
    reader = spark.read.format("danube").options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def _named(given: Mapping[str, str]) -> str:
    names = ("subscribe", "subscribepattern", "assign")
    return next(given[name] for name in names if name in given)


class _File(NamedTuple):
    """The file of a segment."""

    place: str
    """Its directory."""
    topic: str
    byte_count: int


class _Snapshot:
    """Topics at one moment."""

    def __init__(
        self,
        spark: SparkSession,
        options: ReadOptions,
        given: Mapping[str, str],
        schema: str | None,
        *,
        is_held: bool,
    ) -> None:
        self._spark = spark
        self._options = options
        self._given = given
        self._schema = schema
        self._is_held = is_held
        self._settings = dict(READING)
        """How Spark reads, and where stores are."""
        self._stores: set[str] = set()
        """The stores that Spark can find."""

    def rows(self) -> DataFrame:
        """
        Return the messages.

        Raises:
            NotNative: Spark cannot read the segments.
        """
        options = self._options
        self._check()
        columns = self._columns()
        catalog = Catalog(options)
        heads = topics.readable_heads(options, topics.require_heads(options, catalog))
        if not heads:
            raise NotNative("no topic matches")
        if len(heads) > PARTITIONS_MAX:
            raise NotNative(
                f"it has {len(heads)} partitions, and {PARTITIONS_MAX} is the most"
            )
        start = resolve(options.starting, heads, catalog.offset_at_time)
        end = resolve(options.ending, heads, catalog.offset_at_time)
        sealed = [name for name, head in heads.items() if head.sealed != head.base]
        # Segments are listed after the hold, because they may change before.
        client = process_client(options.url, retry_s=BROKER_RETRY_S)
        error = hold_segments(self._spark, client, options.url, sealed)
        if error is not None:
            if self._is_held:
                raise NotNative(f"its segments cannot be held: {error}")
            log.warning(
                "%s is read without a hold, so merging, retention or compaction may "
                "end the query: %s",
                _named(self._given),
                error,
            )
        ranges = topics.find_ranges(options, catalog, start, end, heads=heads)
        parts: dict[str, SealedPart] = {}
        for name, wanted in ranges.items():
            part = divide(wanted)
            if part is None:
                raise NotNative(f"{name} has messages between segments")
            parts[name] = part
        frames = [
            *self._sealed([(name, part.whole) for name, part in parts.items()]),
            *self._cut(parts, ranges),
        ]
        tails = {name: part.tail for name, part in parts.items() if part.tail}
        if tails or not frames:
            frames.append(self._tail(tails, [*parts] or [*heads], columns.names))
        return reduce(
            lambda one, other: one.unionAll(other),
            (each.selectExpr(*map(_as_typed, columns)) for each in frames),
        )

    def _check(self) -> None:
        options = self._options
        if options.values is not None:
            raise NotNative("values are decoded in Python")
        if options.read_through is ReadThrough.ALWAYS:
            raise NotNative("the option readThrough is always")
        for name in _DIVIDING:
            if name.lower() in self._given:
                raise NotNative(f"the option {name} divides it")
        if not hasattr(self._spark, "_jvm"):
            raise NotNative("the session is one of Spark Connect")

    def _columns(self) -> StructType:
        """Return the columns of the table, in order, with their types."""
        if self._schema is None:
            names = self._options.columns or [
                name
                for name in SCHEMA_DEFAULT.names
                if name != "attributes" or self._options.has_attributes
            ]
            known = set(SCHEMA.names)
            if not known.issuperset(names):
                raise NotNative("it has columns of values")
            return StructType([StructField(name, _type_of(name)) for name in names])
        columns = StructType.fromDDL(self._schema)
        for each in columns:
            if each.name not in SCHEMA.names or not _is_type_of(each):
                raise NotNative(f"segments have no column {each.name} of its type")
        if self._options.columns is not None or not columns.names:
            raise NotNative("its columns are given twice, or not at all")
        return columns

    def _sealed(
        self, segments: Sequence[tuple[str, Sequence[Segment]]]
    ) -> Iterator[DataFrame]:
        """Yield all messages of *segments* by topic, unless there are none."""
        files = self._files(segments)
        if files:
            values = {each.place: split_name(each.topic) for each in files.values()}
            yield self._relation(files, _OF_TOPIC, values)

    def _cut(
        self, parts: Mapping[str, SealedPart], ranges: Mapping[str, TopicRange]
    ) -> Iterator[DataFrame]:
        """Yield the messages of segments that have more than those that are wanted."""
        cut = [
            (name, [each.segment for each in part.cut]) for name, part in parts.items()
        ]
        files = self._files(cut)
        if not files:
            return
        values = {
            place: (*split_name(name), ranges[name].base, ranges[name].end)
            for place, name, _ in files.values()
        }
        rows = self._relation(files, _OF_CUT, values)
        # Row groups are skipped by constants only.
        base = min(base for *_, base, _ in values.values())
        end = max(end for *_, end in values.values())
        rows = rows.where(f"`offset` >= {base} AND `offset` < {end}")
        if len(values) > 1:
            rows = rows.where(f"`offset` >= {_BASE} AND `offset` < {_END}")
        yield rows.drop(_BASE, _END)

    def _files(
        self, segments: Sequence[tuple[str, Sequence[Segment]]]
    ) -> dict[str, _File]:
        """Return the files of *segments* by their paths."""
        found = {}
        for name, some in segments:
            for each in some:
                path = self.path_of(each)
                if "\n" in path:
                    raise NotNative(f"{path!r} has a line break")
                place = path.rpartition("/")[0]
                found[path] = _File(place, name, each.byte_count)
        by_place: dict[str, str] = {}
        for place, name, _ in found.values():
            if by_place.setdefault(place, name) != name:
                raise NotNative(f"{place} has segments of several topics")
        return found

    def _relation(
        self,
        files: Mapping[str, _File],
        columns: StructType,
        values: Mapping[str, Sequence[str | int]],
    ) -> DataFrame:
        """
        Return the rows of *files*, with *columns* whose values depend on directories.

        Spark's own reader takes such values only from names of directories, so this
        makes what that reader makes.  *values* are those of each directory.
        """
        sizes = {path: file.byte_count for path, file in files.items()}
        try:
            relations = _Relations(self._spark, self._settings)
            return relations.of(sizes, columns, values)
        except (Py4JError, PySparkException) as error:
            raise NotNative(f"Spark cannot read files: {_cause_of(error)}") from error

    def _tail(
        self,
        tails: Mapping[str, tuple[int, int]],
        names: Sequence[str],
        columns: Sequence[str],
    ) -> DataFrame:
        """Return the messages that are in no segment, which may be none."""
        bounds = tails or dict.fromkeys(names[:1], (0, 0))
        start = {name: base for name, (base, _) in bounds.items()}
        end = {name: stop for name, (_, stop) in bounds.items()}
        options = {
            name: value
            for name, value in self._given.items()
            if not name.startswith(_SELECTING)
        }
        options |= {
            "subscribe": ",".join(bounds),
            "startingoffsets": json.dumps(start),
            "endingoffsets": json.dumps(end),
            "columns": ",".join(columns),
        }
        return self._spark.read.format("danube").options(**options).load()

    def path_of(self, segment: Segment) -> str:
        """
        Return the path at which Hadoop finds *segment*.

        Raises:
            NotNative: It does not.
        """
        parsed = urlsplit(segment.url)
        path = unquote(parsed.path)
        if parsed.scheme == LOCAL and os.access(path, os.R_OK):
            return self._local(path, segment)
        if not segment.remote_url:
            raise NotNative(f"this process cannot read {segment.url}")
        try:
            found = hadoop_url(segment.remote_url)
        except InvalidConfig as error:
            # Stores of other packages have URLs that only these know.
            raise NotNative(str(error)) from error
        if found is None:
            scheme = segment.remote_url.partition(":")[0]
            raise NotNative(f"Spark has no file system for {scheme}://")
        if found.startswith(f"{LOCAL}:"):
            path = found.removeprefix(f"{LOCAL}:")
            if not os.access(path, os.R_OK):
                raise NotNative(f"this process cannot read {segment.remote_url}")
            return self._local(path, segment)
        store = found[: found.index("/", found.index("://") + 3)]
        if store not in self._stores:
            self._stores.add(store)
            self._find_store(found, segment)
        return found

    def _local(self, path: str, segment: Segment) -> str:
        """
        Return the path of Hadoop for *path*, the file of *segment* on this machine.

        Raises:
            NotNative: It is another file.
            NoFiles: Executors may not have it.
        """
        try:
            size = Path(path).stat().st_size
        except OSError as error:
            raise NotNative(f"this process cannot read {path}: {error}") from error
        _check_size(path, size, segment)
        path = f"{LOCAL}:{path}"
        never = self._options.read_through is ReadThrough.NEVER
        if never or self._spark.sparkContext.master.startswith("local"):
            return path
        raise NoFiles(
            "executors may not have the files of the broker; if all have its directory "
            "at the same path, set readThrough to never"
        )

    def _find_store(self, url: str, segment: Segment) -> None:
        """
        Add the settings for the store of *url*, where the broker has *segment*.

        Raises:
            NoFiles: The session has no file system for it, or no access to *url*.
            NotNative: *url* is another file.
        """
        hadoop: Any = self._spark._jvm.org.apache.hadoop.fs  # noqa: SLF001
        state: Any = self._spark._jsparkSession.sessionState()  # noqa: SLF001
        configuration = state.newHadoopConf()
        try:
            hadoop.FileSystem.getFileSystemClass(url.partition(":")[0], configuration)
        except Py4JError as error:
            raise NoFiles(missing_package(url)) from error

        given_endpoint = self._spark.conf.get(f"spark.hadoop.{ENDPOINT}", None)

        def setting(name: str) -> str | None:
            return setting_of_session(name, configuration.get(name), given_endpoint)

        own = store_settings(url, segment.store_options, setting)
        self._settings |= own
        given = self._spark._jvm.PythonUtils.toScalaMap(self._settings)  # noqa: SLF001
        try:
            path = hadoop.Path(url)
            system = path.getFileSystem(state.newHadoopConfWithOptions(given))
            other = opened_otherwise(url, own, system.getConf().get)
            size = system.getFileStatus(path).getLen() if other is None else 0
        except Py4JError as error:
            raise NoFiles(missing_access(url, _cause_of(error))) from error
        if other is not None:
            raise NoFiles(other)
        _check_size(url, size, segment)


class _Relations:
    """Relations of Parquet files, made of the classes of Spark's own source."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        self._settings = dict(settings)
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._session: Any = spark._jsparkSession  # noqa: SLF001
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001

    def _class(self, name: str) -> Any:
        """Return a class of Java, without a call for each package of its name."""
        return JavaClass(name, self._gateway._gateway_client)  # noqa: SLF001

    def of(
        self,
        files: Mapping[str, int],
        columns: StructType,
        values: Mapping[str, Sequence[str | int]],
    ) -> DataFrame:
        """
        Return the rows of *files*, with their sizes; see ``_Snapshot._relation``.

        Nobody asks for the files before a query reads them.

        Raises:
            Py4JError, PySparkException: This version of Spark has other classes.
            NotNative: Spark leaves files out.
        """
        option, place = (
            self._class("scala.Option"),
            self._class(f"{_SOURCES}PartitionPath"),
        )
        partitions = self._schema(columns)
        places = [
            place(self._row(partitions, row), self._path(path))
            for path, row in values.items()
        ]
        specification = self._class(f"{_SOURCES}PartitionSpec")(
            partitions, self._jvm.PythonUtils.toSeq(places)
        )
        # Spark takes two relations for one if only the values of directories differ.
        given = blake2b(json.dumps(sorted(values.items())).encode(), digest_size=16)
        options = self._jvm.PythonUtils.toScalaMap(
            self._settings | {_VALUES: given.hexdigest()}
        )
        paths, statuses = self._found(files)
        index = self._class(f"{_SOURCES}InMemoryFileIndex")(
            self._session,
            paths,
            options,
            option.empty(),
            statuses,
            option.apply(specification),
            option.empty(),
        )
        if index.sizeInBytes() != sum(files.values()):
            # It leaves out what has the name of a directory of Spark's, among others.
            raise NotNative("Spark does not read all of its segments")
        relation = self._class(f"{_SOURCES}HadoopFsRelation")(
            index,
            partitions,
            self._schema(_SEGMENT),
            option.empty(),
            self._class(f"{_SOURCES}parquet.ParquetFileFormat")(),
            options,
            self._session,
        )
        return DataFrame(self._session.baseRelationToDataFrame(relation), self._spark)

    def _schema(self, schema: StructType) -> Any:
        return self._session.parseDataType(schema.json())

    def _row(self, partitions: Any, values: Sequence[str | int]) -> Any:
        """Return *values* as Spark has them inside; numbers are of the type bigint."""
        catalyst = "org.apache.spark.sql.catalyst.expressions"
        row = self._class(f"{catalyst}.SpecificInternalRow")(partitions)
        text = self._class("org.apache.spark.unsafe.types.UTF8String")
        for at, value in enumerate(values):
            if isinstance(value, str):
                row.update(at, text.fromString(value))
            else:
                row.setLong(at, value)
        return row

    def _path(self, path: str) -> Any:
        return self._class("org.apache.hadoop.fs.Path")(path)

    def _found(self, files: Mapping[str, int]) -> tuple[Any, Any]:
        """
        Return the paths of *files*, and a cache of what is known of them.

        Spark would list each file in a task of its own, and need the permission to list
        in an object store.  The broker has said how large they are.  Spark's own cache
        may be turned off, is limited, and is emptied by ``REFRESH TABLE``, after which
        Spark leaves out files that are gone.
        """
        client = self._gateway._gateway_client  # noqa: SLF001
        statuses = _known_files(client).newInstance()
        # One call of Java for all files.
        lines = (f"{size} {path}" for path, size in files.items())
        paths = statuses.putAll("\n".join(lines))
        sequences = self._class("scala.collection.immutable.ArraySeq")
        return sequences.unsafeWrapArray(paths), statuses


@lru_cache(maxsize=1)
def _known_files(client: Any) -> Any:
    """Return the class KNOWN_FILES, made by the compiler of Spark's own queries."""
    known = JavaClass(f"{_SOURCES}FileStatusCache", client)
    compiler = JavaClass("org.codehaus.janino.SimpleCompiler", client)()
    compiler.setParentClassLoader(known._java_lang_class.getClassLoader())  # noqa: SLF001
    compiler.cook(KNOWN_FILES)
    return compiler.getClassLoader().loadClass("KnownFiles")


def _check_size(place: str, size: int, segment: Segment) -> None:
    """
    Raise if the file at *place* has another size than *segment*.

    Raises:
        NotNative: It has, so it is another file.
    """
    if size != segment.byte_count:
        raise NotNative(
            f"{place} has {size} bytes, and the segment {segment.byte_count}"
        )


def _cause_of(error: Exception) -> str:
    """Return the first line of what is at the bottom of *error*."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while (deeper := cause.getCause()) is not None:
            cause = deeper
        text = str(cause.toString())
    return text.partition("\n")[0]


def _type_of(name: str) -> Any:
    return from_arrow_type(SCHEMA.field(name).type)


def _is_type_of(column: StructField) -> bool:
    """Return whether topics can be read with *column*."""
    is_text = column.name in TEXT_COLUMNS and column.dataType == StringType()
    return is_text or bool(column.dataType == _type_of(column.name))


def _as_typed(column: StructField) -> str:
    """Return the column as a topic has it, or as text if that is wanted."""
    # An expression is one call of Java; a column of functions is some thirty.
    kind = column.dataType.simpleString()
    if column.dataType == TimestampType():
        kind = "timestamp_ltz"  # A session may give the other name another meaning.
    found = f"CAST(`{column.name}` AS {kind})"
    if column.dataType == StringType() and column.name in TEXT_COLUMNS:
        # A cast alone keeps bytes that are no text.
        found = f"validate_utf8({found})"
    return f"{found} AS `{column.name}`"


_OF_TOPIC = StructType(
    [StructField("topic", StringType()), StructField("partition", LongType())]
)
"""The columns that segments do not have, because all of their messages agree."""
_OF_CUT = StructType(
    [*_OF_TOPIC, StructField(_BASE, LongType()), StructField(_END, LongType())]
)
"""Those, and the wanted offsets of segments that have more."""
_SEGMENT = StructType(
    [
        StructField(field.name, from_arrow_type(field.type))
        for field in segment_format.SCHEMA
    ]
)
"""The columns of segments, so that Spark opens none to find out."""
