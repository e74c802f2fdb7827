"""
Every value of every Spark type, in every sink: stored as it is, or refused by name.

The writers run here as Spark's tasks run them, with Arrow batches and without Spark.
"""

import base64
import json
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

pyspark = pytest.importorskip("pyspark")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pydanube.model.errors import BrokerError  # noqa: E402
from pydanube_spark.dataframe_columns import arrow_schema  # noqa: E402
from pydanube_spark.pure.sink import TaskKey  # noqa: E402
from pydanube_spark.sinks.clickhouse import ClickHouseDataSource  # noqa: E402
from pydanube_spark.sinks.lancedb import LanceDataSource  # noqa: E402
from pydanube_spark.sinks.postgres import PostgresDataSource  # noqa: E402
from pydanube_spark.sinks.postgres_database import connect  # noqa: E402
from pydanube_spark.sinks.pure import postgres_sql  # noqa: E402
from pydanube_spark.tables.delta import DeltaDataSource  # noqa: E402
from pydanube_spark.tables.iceberg import IcebergDataSource  # noqa: E402
from pydanube_spark.topic_sink import DanubeSink  # noqa: E402
from support.drivers.lake_tables import catalog_of, read_with_polars, table_in  # noqa: E402
from support.drivers.pipelines import unique_topic  # noqa: E402
from support.servers.clickhouse import PASSWORD, USER, ClickHouseProcess  # noqa: E402
from support.servers.http_server import LocalServer, Request  # noqa: E402
from support.servers.postgres import PostgresProcess  # noqa: E402

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.rotated,
    # pyiceberg raises it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

NAME = "wanted"
DAY_US = 86_400 * 10**6


def days(year, month=1, day=1):
    return int(np.datetime64(f"{year}-{month:02}-{day:02}", "D").astype(int))


DAYS = [
    -(2**31),
    *(days(year) for year in (-4713, -1, "0000", "0001", 1899, 1900, 1969, 9999)),
    days("-0001", 12, 31),
    days("0000", 12, 31),
    days(2299, 12, 31),
    days(9999, 12, 31),
    days(9999, 12, 31) + 1,
    days(32768 - 1, 12, 31) + 1,
    2**31 - 1,
]
MOMENTS = [
    -(2**63) + 1,
    -1,
    0,
    2**63 - 1,
    1_700_000_000_000 * 10**6,
    *(each * DAY_US + more for each in DAYS[1:-1] for more in (0, -1)),
]
"""The last but one is a time in milliseconds that was taken as seconds."""
REALS = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]
FLOATS = [*REALS[:6], *map(float, np.array([1e-45, 3.4028235e38], np.float32))]
BROKEN_TEXTS = [b"\xff", b"ok", b"a\x80b", b"\xed\xa0\x80", b"\xc3"]
"""Bytes that Spark takes as text, although only one of them is UTF-8."""
TEXTS = ["", "ä", "\x00", "a\x00b", '\x01\x1f"\\\n', "\U0010ffff", "'", "null"]


def whole(bits):
    return [-(2 ** (bits - 1)), -1, 0, 2 ** (bits - 1) - 1]


def decimals(precision, scale):
    # Arithmetic would round to 28 digits.
    texts = ["9" * precision, "-" + "9" * precision, "1", "0"]
    return [Decimal(f"{each}e-{scale}") for each in texts]


@dataclass(frozen=True)
class Kind:
    """A type of Spark, the integers or other values that its columns have, and more."""

    type: Any
    bounds: list
    more: Any = None


KINDS = {
    "boolean": Kind(BooleanType(), [True, False], st.booleans()),
    "byte": Kind(ByteType(), whole(8), st.integers(-128, 127)),
    "short": Kind(ShortType(), whole(16), st.integers(-(2**15), 2**15 - 1)),
    "int": Kind(IntegerType(), whole(32), st.integers(-(2**31), 2**31 - 1)),
    "long": Kind(LongType(), whole(64), st.integers(-(2**63), 2**63 - 1)),
    "float": Kind(FloatType(), FLOATS, st.floats(width=32)),
    "double": Kind(DoubleType(), REALS, st.floats()),
    "string": Kind(StringType(), TEXTS, st.text(max_size=20)),
    "broken text": Kind(StringType(), BROKEN_TEXTS),
    "binary": Kind(BinaryType(), [b"", b"\x00\xff", b"ada"], st.binary(max_size=20)),
    "decimal(38, 38)": Kind(DecimalType(38, 38), decimals(38, 38)),
    "decimal(38, 0)": Kind(DecimalType(38, 0), decimals(38, 0)),
    "decimal(10, 2)": Kind(
        DecimalType(10, 2),
        [*decimals(10, 2), Decimal("-2.78"), Decimal("-0.20")],
        st.decimals(-(10**7), 10**7, places=2),
    ),
    "date": Kind(DateType(), DAYS, st.integers(-(2**31), 2**31 - 1)),
    "timestamp": Kind(TimestampType(), MOMENTS, st.integers(-(2**63), 2**63 - 1)),
    "timestamp_ntz": Kind(TimestampNTZType(), MOMENTS, st.sampled_from(MOMENTS)),
    "interval": Kind(DayTimeIntervalType(), [0, -1, 2**63 - 1]),
    "array of times": Kind(ArrayType(TimestampType()), [[], [0, None], MOMENTS[3:4]]),
    "array of text": Kind(ArrayType(StringType()), [[], ["", None], ["\x00"]]),
    "array of broken text": Kind(
        ArrayType(StringType()), [["a", None], ["b", BROKEN_TEXTS[0]]]
    ),
    "map of broken text": Kind(
        MapType(StringType(), StringType()), [[("a", "b")], [("a", BROKEN_TEXTS[2])]]
    ),
    "map of dates": Kind(
        MapType(StringType(), DateType()), [[], [("a", 0)], [("b", DAYS[0])]]
    ),
    "array of maps": Kind(
        ArrayType(MapType(StringType(), ArrayType(LongType()))),
        [[], [[("a", [2**63 - 1, None])], []], [None, [("", None)]]],
    ),
    "map of local times": Kind(
        MapType(StringType(), TimestampNTZType()), [[], [("a", 0)], [("a", MOMENTS[0])]]
    ),
    "struct": Kind(
        StructType(
            [StructField("real", DoubleType()), StructField("at", TimestampType())]
        ),
        [
            {"real": 1.5, "at": 0},
            {"real": math.nan, "at": None},
            {"real": None, "at": MOMENTS[3]},
            {"real": -0.0, "at": MOMENTS[0]},
        ],
    ),
}


def raw_type(kind):  # noqa: PLR0911
    """The type with integers and bytes for what Python may not have."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(raw_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(raw_type(kind.key_type), raw_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, raw_type(f.type)) for f in kind])
    return kind


def plain(value):
    """*value* so that NaN equals itself, and -0.0 does not equal 0.0; text as bytes."""
    match value:
        case str():
            return value.encode()
        case float():
            return repr(value)
        case [tuple(), *_]:
            # The entries of a map have no order.
            return sorted(map(plain, value), key=repr)
        case list() | tuple():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case _:
            return value


def cast(column, kind):
    """*column* as *kind*, also if its text is not UTF-8."""
    how = pc.CastOptions(target_type=kind, allow_invalid_utf8=True)
    return column.cast(options=how)


def values_of(column, kind):
    """The values of an Arrow column, which another library may have read."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return cast(cast(column, kind), raw_type(kind)).to_pylist()


def of_json(kind, value):  # noqa: PLR0911
    """The value of the type *kind* that *value* is in JSON."""
    if value is None:
        return None
    if pa.types.is_date32(kind):
        return int(np.datetime64(value, "D").astype(int))
    if pa.types.is_timestamp(kind):
        return int(np.datetime64(value.removesuffix("Z"), "us").astype(int))
    if pa.types.is_float32(kind):
        return float(np.float32(value))
    if pa.types.is_float64(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_list(kind):
        return [of_json(kind.value_type, each) for each in value]
    if pa.types.is_map(kind):
        return [(key, of_json(kind.item_type, each)) for key, each in value.items()]
    if pa.types.is_struct(kind):
        return {f.name: of_json(f.type, value.get(f.name)) for f in kind}
    return value


def parse_json(text):
    def parse_int(digits):
        return -0.0 if digits == "-0" else int(digits)

    return json.loads(text, parse_float=Decimal, parse_int=parse_int)


def without_nan(value):
    """What the sink of PostgreSQL stores in jsonb, where NaN becomes null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return type(value)(map(without_nan, value))
        case dict():
            return {name: without_nan(each) for name, each in value.items()}
        case _:
            return value


def without_null(value, kind):
    """What ClickHouse stores, where null arrays, maps and structs are empty."""
    if pa.types.is_list(kind):
        return [without_null(each, kind.value_type) for each in value or []]
    if pa.types.is_map(kind):
        return [(key, without_null(each, kind.item_type)) for key, each in value or []]
    if pa.types.is_struct(kind):
        return {f.name: without_null((value or {}).get(f.name), f.type) for f in kind}
    return value


class Target:
    """A sink, and how others read what it has written."""

    source: Any
    is_nested_in_value = False

    def __init__(self, options):
        self.options = options

    def read(self, kind):
        raise NotImplementedError

    def expected(self, value, kind):
        del kind
        return value


class LakeTarget(Target):
    def __init__(self, directory, kind):
        self.table = table_in(directory, kind)
        self.source = DeltaDataSource if kind == "delta" else IcebergDataSource
        catalog = {f"catalog.{k}": v for k, v in catalog_of(directory).items()}
        super().__init__(
            {"path": self.table.name}
            if kind == "delta"
            else {"table": self.table.name, **catalog}
        )

    def read(self, kind):
        rows = read_with_polars(self.table).sort_by("id")
        return values_of(rows.column(NAME), kind)


class LanceTarget(Target):
    source = LanceDataSource

    def __init__(self, directory):
        super().__init__({"uri": str(directory), "table": "t", "createTable": "true"})

    def read(self, kind):
        import lancedb

        table = lancedb.connect(self.options["uri"]).open_table("t")
        return values_of(table.to_arrow().sort_by("id").column(NAME), kind)


class PostgresTarget(Target):
    source = PostgresDataSource

    def __init__(self, server):
        self.uri, self.table = server.uri, f"t_{uuid.uuid4().hex}"
        super().__init__({"uri": self.uri, "table": self.table, "createTable": "true"})

    def read(self, kind):
        database = connect(self.uri)
        try:
            sql = NAME
            if pa.types.is_decimal(kind):
                sql = f"{NAME}::text"
            query = f"SELECT {sql} AS {NAME} FROM {self.table} ORDER BY id"
            rows = pa.Table.from_batches(list(database.read(query)))
        finally:
            database.close()
        column = rows.column(NAME)
        if pa.types.is_decimal(kind):
            return [each and Decimal(each) for each in column.to_pylist()]
        if postgres_sql.is_json(kind):
            texts = column.combine_chunks().cast(pa.string()).to_pylist()
            return [each and of_json(kind, parse_json(each)) for each in texts]
        return values_of(column, kind)

    def expected(self, value, kind):
        return without_nan(value) if postgres_sql.is_json(kind) else value


class ClickHouseTarget(Target):
    source = ClickHouseDataSource

    def __init__(self, proxy, engine):
        self.engine, self.table = engine, f"t_{uuid.uuid4().hex}"
        super().__init__(
            {
                "url": proxy.url,
                "password": PASSWORD,
                "table": self.table,
                "createTable": "true",
                "orderBy": "id",
            }
        )

    def read(self, kind):
        sql = f"SELECT {NAME} FROM {self.table} ORDER BY id FORMAT ArrowStream"
        headers = {"x-clickhouse-user": USER, "x-clickhouse-key": PASSWORD}
        answer = self.engine.forward(Request("POST", "/", {}, headers, sql.encode()))
        assert answer.status == 200, answer.body
        rows = pa.ipc.open_stream(answer.body).read_all()
        return values_of(rows.column(NAME), kind)

    def expected(self, value, kind):
        return without_null(value, kind)


class TopicTarget(Target):
    source = DanubeSink
    is_nested_in_value = True

    def __init__(self, client, url):
        self.client, self.topic = client, unique_topic(client)
        super().__init__({"url": url, "topic": self.topic})

    def read(self, kind):
        payloads = [m.payload for batch in self.client.read(self.topic) for m in batch]
        rows = [parse_json(each) for each in payloads]
        return [of_json(kind, row.get(NAME)) for row in rows]


@pytest.fixture(scope="module")
def postgres():
    with PostgresProcess() as server:
        yield server


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory):
    with (
        ClickHouseProcess(tmp_path_factory.mktemp("clickhouse")) as engine,
        LocalServer(engine.forward) as proxy,
    ):
        yield proxy, engine


SINKS = ["topic", "delta", "iceberg", "lancedb", "postgres", "clickhouse"]


@pytest.fixture(params=SINKS)
def new_target(request, tmp_path_factory):
    """A function that returns an empty target of one sink."""

    def make():
        directory = tmp_path_factory.mktemp("values")
        match request.param:
            case "delta" | "iceberg" as kind:
                return LakeTarget(directory, kind)
            case "lancedb":
                return LanceTarget(directory)
            case "postgres":
                return PostgresTarget(request.getfixturevalue("postgres"))
            case "clickhouse":
                return ClickHouseTarget(*request.getfixturevalue("clickhouse"))
        client = request.getfixturevalue("client")
        return TopicTarget(client, request.getfixturevalue("broker_url"))

    return make


def staged(target, kind, values):
    """Write a row with null and then those with *values*; return how to commit."""
    fields = [StructField("id", LongType()), StructField(NAME, kind)]
    schema = StructType(fields)
    if target.is_nested_in_value:
        schema = StructType([StructField("value", schema)])
    flat = arrow_schema(StructType(fields))
    column = flat.field(NAME).type
    raw = pa.array([None, *values], raw_type(column))
    batch = pa.record_batch([pa.array(range(len(raw))), cast(raw, column)], schema=flat)
    if target.is_nested_in_value:
        batch = pa.record_batch([batch.to_struct_array()], schema=arrow_schema(schema))
    writer = target.source(target.options).writer(schema, False)
    sink, key = writer._sink, writer._key
    output = sink.write(TaskKey(key, 0, 0), iter([batch]))
    return column, lambda: sink.commit(key, [output])


def refusal(target, kind, value):
    """Why the sink refuses the value, or all of its type; empty if it does not."""
    try:
        staged(target, kind, [value])
    except BrokerError as error:
        return str(error)
    return ""


def is_refused(target, kind, value):
    found = refusal(target, kind, value)
    if not found:
        return False
    # Some types have no values in a system.
    is_about_type = "type" in found or "cannot" in found
    assert NAME in found
    assert "of row 1 is " in found or is_about_type, found
    return True


def check(new_target, kind, values):
    probe = new_target()
    values = [each for each in values if not is_refused(probe, kind, each)]
    if not values:
        return
    target = new_target()
    column, commit = staged(target, kind, values)
    commit()
    _, *found = target.read(column)
    assert plain(found) == plain([target.expected(each, column) for each in values])


@pytest.mark.rotated
@pytest.mark.parametrize("name", KINDS)
def test_every_bound_is_stored_as_it_is_or_refused_by_name(new_target, name):
    kind = KINDS[name]
    check(new_target, kind.type, kind.bounds)


@pytest.mark.soak
@settings(
    deadline=None,
    max_examples=3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if kind.more is not None]
)
def test_any_value_is_stored_as_it_is_or_refused_by_name(new_target, name, data):
    kind = KINDS[name]
    check(new_target, kind.type, data.draw(st.lists(kind.more, min_size=1)))


def shapes():
    """Types, each with a strategy for its values, of up to four plain types."""

    def shape_of(kind):
        bounds = st.sampled_from(kind.bounds)
        values = bounds if kind.more is None else bounds | kind.more
        return kind.type, st.none() | values

    def array(shape):
        kind, values = shape
        return ArrayType(kind), st.none() | st.lists(values, max_size=3)

    def by_name(shape):
        kind, values = shape
        entries = st.dictionaries(st.text(max_size=3), values, max_size=3)
        return MapType(StringType(), kind), st.none() | entries.map(
            lambda each: list(each.items())
        )

    def struct(parts):
        names = [f"part {at}" for at in range(len(parts))]
        pairs = list(zip(names, parts, strict=True))
        fields = [StructField(name, kind) for name, (kind, _) in pairs]
        values = st.fixed_dictionaries({name: each for name, (_, each) in pairs})
        return StructType(fields), st.none() | values

    plain_kinds = [each for each in KINDS.values() if not is_nested(each.type)]
    return st.recursive(
        st.sampled_from(plain_kinds).map(shape_of),
        lambda inner: (
            inner.map(array)
            | inner.map(by_name)
            | st.lists(inner, min_size=1, max_size=3).map(struct)
        ),
        max_leaves=4,
    )


def is_nested(kind):
    return isinstance(kind, ArrayType | MapType | StructType)


@pytest.mark.soak
@settings(
    deadline=None,
    max_examples=10,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_values_of_any_nested_type_are_stored_as_they_are_or_refused(new_target, data):
    kind, values = data.draw(shapes().filter(lambda each: is_nested(each[0])))
    check(new_target, kind, data.draw(st.lists(values, min_size=1, max_size=4)))
