"""
The change feeds of databases: the events of Debezium as rows.

An event has the row before and after a change.  Tombstones, which follow deletions, are
dropped, and so are Debezium's heartbeats, limits of transactions and changes of
schemas.  Events are JSON, with or without the schema that Debezium's converter adds, or
records that the topic's schema decodes.

Events of JSON are parsed twice: as texts by column, which show the columns that an
event has, and as the declared types.  Documents of MongoDB are texts in their events,
in extended JSON, in which most values are objects that name their type.  They become
plain JSON first, in events like those of other databases.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pydanube_spark.pipelines.options import UNAVAILABLE
from pydanube_spark.pipelines.pure.json_messages import quote
from pydanube_spark.pipelines.pure.new_columns import PLAIN_VALUES
from pydanube_spark.pipelines.pure.spec import (
    ChangeFeed,
    SchemaChanges,
    Source,
    Truncate,
)

OPERATION = "_op"
"""
The column with the operation: c(reate), r(ead by a snapshot), u(pdate), d(elete), and
t(runcate) with ``truncate: apply``.
"""
TIME = "_ts"
"""The column with the time at which Debezium processed the change."""
OFFSET = "_offset"
"""The column with the offset of the event in its topic partition."""

PLACEHOLDER = "__debezium_unavailable_value"
"""The value of a column that the database has not sent, because it did not change."""

IS_TOMBSTONE = "coalesce(length(payload), 0) = 0"
"""The condition that a message is a tombstone."""

IS_COMPLETE = (
    f"CASE WHEN size({UNAVAILABLE}) = 0 THEN true ELSE raise_error(concat('the event "
    f"at offset ', {OFFSET}, ' has no value for the column ', {UNAVAILABLE}[0], ', "
    "which is large and did not change: only a sink with table.key that reads the "
    "source itself keeps the value that it has. Set REPLICA IDENTITY FULL for the "
    "table in PostgreSQL, or unavailable_as_null for the source')) END"
)
"""The condition that a row has all its values; it fails for other rows."""

NEW_COLUMNS = ", has columns that this query does not have: "
"""A part of the error about an event with new columns, which are in JSON after it."""

_ERROR = "_error"
_NEW = "_danube_new"
_EVENT = "_danube_event"
_TEXTS = "_danube_texts"
_ROW = "_danube_row"
_CORRUPT = "_danube_corrupt"
_SKIPPED = "_danube_skipped"
_ENVELOPE = "_danube_envelope"
_TEXT = "_danube_text"
_NO_ROW = "'it is no change of a row by Debezium: it has no row'"
_NO_DOCUMENT = (
    f"IF({_EVENT}.op = 'd', 'it is the deletion of a document without its _id: the "
    "message needs the key that Debezium gives it, in JSON', 'it is no change of a row "
    "by Debezium: it has no document. Set capture.mode=change_streams_update_full in "
    "Debezium; with it, documents are missing only if they were deleted at once')"
)
_SHOWN_MAX = 100
"""How many characters of an unreadable value an error has."""

_FIELDS = (
    "json_object_keys(coalesce(get_json_object(CAST(payload AS STRING), '$.payload'), "
    "CAST(payload AS STRING)))"
)
_IS_CONTROL = (
    f"({_EVENT}.op IS NULL AND coalesce({_FIELDS} = array('ts_ms') OR "
    f"size(array_except(array('status', 'id', 'event_count'), {_FIELDS})) = 0 OR "
    f"size(array_except(array('source', 'ddl'), {_FIELDS})) = 0, false))"
)
"""
The condition that a message of JSON is about Debezium itself.

These are heartbeats, the limits of transactions, and changes of schemas.
"""

_BYTES = PLACEHOLDER.encode()
_PLACEHOLDER_TEXTS = (
    PLACEHOLDER,
    b64encode(_BYTES).decode(),
    f'["{PLACEHOLDER}"]',
    f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
    f"[{','.join(map(str, _BYTES))}]",
)
"""The placeholder in the JSON of text, bytes, lists of text, maps and lists of ints."""


def read_events(messages: DataFrame, source: Source) -> DataFrame:
    """
    Return *messages* of *source* with their events, and ``_error`` for those without.

    If the events are JSON, the source's schema has the columns of a row; without it,
    the events are decoded.  A row of JSON has all of these columns and no other ones,
    except for those that are optional.  A document of MongoDB may lack any of them.
    """
    is_document = source.cdc is ChangeFeed.DEBEZIUM_MONGODB
    if source.schema is None:
        events = _decoded_events(messages)
    else:
        text = "nullif(CAST(payload AS STRING), '')"
        texts = (
            _documents_as_rows(messages, is_decoded=bool(source.decode))
            if is_document
            else messages.withColumn(_TEXT, F.expr(text))
        )
        events = _json_events(texts, source, is_document=is_document)
    skipped = f"{IS_TOMBSTONE} OR {_EVENT}.op <=> 'm'"
    if source.truncate is Truncate.IGNORE:
        skipped += f" OR {_EVENT}.op <=> 't'"
    if not source.decode:
        skipped += f" OR {_IS_CONTROL}"
    events = _computed_once(events, _SKIPPED, skipped)
    if source.schema is None or source.schema_changes is SchemaChanges.FAIL:
        events = events.withColumn(_NEW, F.expr("CAST(array() AS ARRAY<STRING>)"))
    return _computed_once(events, _ERROR, f"IF({_SKIPPED}, NULL, {_ERROR})")


def undecodable_events(events: DataFrame) -> DataFrame:
    """Return the messages of ``read_events`` with the error of dead letters."""
    own = [name for name in events.columns if not name.startswith("_danube")]
    return events.select(*(name for name in own if name != UNAVAILABLE))


def rows_of_events(
    events: DataFrame, *, skips_errors: bool, has_truncations: bool
) -> DataFrame:
    """
    Return the row of each change in *events*, of ``read_events``.

    With *has_truncations*, a truncation is a row whose columns are null; otherwise it
    fails the query.

    After its columns there are the three above, and the names of those whose value the
    database has not sent, which are null.  A message with an error fails the query, or
    is left out with *skips_errors*.
    """
    row = _struct_of(events, _ROW)
    values = [
        f"IF(array_contains({UNAVAILABLE}, {_literal(each.name)}), NULL, "
        f"{_ROW}.{quote(each.name)}) AS {quote(each.name)}"
        for each in row
    ]
    is_change = _is_change(skips_errors=skips_errors, has_truncations=has_truncations)
    return events.where(is_change).selectExpr(
        *values,
        f"{_EVENT}.op AS {OPERATION}",
        f"timestamp_millis({_EVENT}.ts_ms) AS {TIME}",
        f"offset AS {OFFSET}",
        UNAVAILABLE,
    )


def _documents_as_rows(messages: DataFrame, *, is_decoded: bool) -> DataFrame:
    """Return *messages* with the texts of events whose documents are objects."""
    fields = dict.fromkeys(("before", "after", "op"), "STRING") | {"ts_ms": "BIGINT"}
    if is_decoded:
        known = _struct_of(messages, "value").names
        values = {
            name: f"value.{name}" if name in known else f"CAST(NULL AS {kind})"
            for name, kind in fields.items()
        }
        events = messages
    else:
        declared = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        declared = _literal(f"{declared}, payload STRUCT<{declared}>")
        parsed = f"from_json(CAST(payload AS STRING), {declared})"
        events = messages.withColumn(_ENVELOPE, F.expr(parsed))
        values = {
            name: f"coalesce({_ENVELOPE}.payload.{name}, {_ENVELOPE}.{name})"
            for name in fields
        }
    # The event of a deletion has no document by default; the key has its _id.
    key = "CAST(key AS STRING)"
    found = (
        f"coalesce(get_json_object({key}, '$.payload.id'), "
        f"get_json_object({key}, '$.id'))"
    )
    before = f"coalesce({values['before']}, concat('{{\"_id\":', {found}, '}}'))"
    documents = [
        f"coalesce({_plain(each)}, 'null')" for each in (before, values["after"])
    ]
    named = f"struct({values['op']} AS op, {values['ts_ms']} AS ts_ms)"
    rest = f"nullif(substring(to_json({named}), 2), '}}')"
    text = (
        f"concat('{{\"before\":', {documents[0]}, ',\"after\":', {documents[1]}, "
        f"coalesce(concat(',', {rest}), '}}'))"
    )
    return _computed_once(events, _TEXT, text)


def _computed_once(frame: DataFrame, name: str, expression: str) -> DataFrame:
    """
    Return *frame* with the column *name*, which is computed once for each row.

    Spark moves conditions below the columns that they need, which repeats these for
    each mention, but not below a generator.
    """
    return frame.withColumn(name, F.explode(F.array(F.expr(expression))))


def _plain(document: str) -> str:
    """Return the SQL of *document*, in extended JSON, as plain JSON."""
    for pattern, replacement in PLAIN_VALUES:
        document = (
            f"regexp_replace({document}, {_literal(pattern)}, {_literal(replacement)})"
        )
    return document


def _json_events(
    messages: DataFrame, source: Source, *, is_document: bool
) -> DataFrame:
    # Not a part of a longer string, and not the key of a map.
    token = f'(?<!\\\\)"{PLACEHOLDER}"(?!\\s*:)'
    clean = f"regexp_replace({_TEXT}, {_literal(token)}, 'null')"
    row = _parsed(clean, f"STRUCT<{source.schema}>")
    texts = _parsed(_TEXT, "MAP<STRING, STRING>")
    events = _computed_once(_computed_once(messages, _EVENT, row), _TEXTS, texts)
    corrupt = f"{_EVENT}.{_CORRUPT} IS NOT NULL"
    events = events.withColumn(_CORRUPT, F.expr(corrupt))
    for name in (_EVENT, _TEXTS):
        bare = f"struct({name}.before, {name}.after, {name}.op, {name}.ts_ms)"
        events = _computed_once(events, name, f"coalesce({name}.payload, {bare})")
    events = _computed_once(_with_row(events), _TEXTS, _row_of(_TEXTS))
    row = _struct_of(events, _ROW)
    placeholders = ", ".join(map(_literal, _PLACEHOLDER_TEXTS))
    is_placeholder = f"coalesce({_TEXTS}[name] IN ({placeholders}), false)"
    unavailable = f"filter({_names(row.names)}, name -> {is_placeholder})"
    events = _computed_once(events, UNAVAILABLE, unavailable)
    # The fields of documents are not declared in the database.
    optional = [*source.optional_columns, *(row.names if is_document else ())]
    evolves = source.schema_changes is SchemaChanges.EVOLVE
    if evolves:
        known = _names([*row.names, *optional])
        new = (
            f"filter(array_except(coalesce(map_keys({_TEXTS}), array()), {known}), "
            f"name -> {_TEXTS}[name] IS NOT NULL)"
        )
        events = _computed_once(events, _NEW, new)
    problem = _event_problem(
        _NO_DOCUMENT if is_document else _NO_ROW,
        _json_problems(row, optional, evolves=evolves),
    )
    if source.decode:
        problem = f"coalesce({_ERROR}, {problem})"
    return events.withColumn(_ERROR, F.expr(problem))


def _decoded_events(messages: DataFrame) -> DataFrame:
    events = _with_row(messages.selectExpr("*", f"value AS {_EVENT}"))
    tests = [
        f"IF({found}, array({_literal(field.name)}), array())"
        for field in _struct_of(events, _ROW)
        if (found := _is_placeholder(field))
    ]
    empty = "CAST(array() AS ARRAY<STRING>)"
    events = events.withColumn(
        UNAVAILABLE, F.expr(f"concat({', '.join(tests)})" if tests else empty)
    )
    problem = f"coalesce({_ERROR}, {_event_problem(_NO_ROW)})"
    return events.withColumn(_ERROR, F.expr(problem))


def _with_row(events: DataFrame) -> DataFrame:
    return _computed_once(events, _ROW, _row_of(_EVENT))


def _row_of(event: str) -> str:
    return f"IF({event}.op = 'd', {event}.before, {event}.after)"


def _parsed(text: str, row: str) -> str:
    fields = f"before {row}, after {row}, op STRING, ts_ms BIGINT"
    schema = f"{fields}, payload STRUCT<{fields}>, {_CORRUPT} STRING"
    options = f"map('columnNameOfCorruptRecord', '{_CORRUPT}')"
    return f"from_json({text}, {_literal(schema)}, {options})"


def _event_problem(no_row: str, further: Sequence[str] = ()) -> str:
    """Return the SQL of why a message is no change of a row; null if it is one."""
    large = (
        f"concat('the value of the large column ', {UNAVAILABLE}[0], ' is not in the "
        "event of the new row: set REPLICA IDENTITY FULL for the table')"
    )
    return (
        "CASE "
        f"WHEN {IS_TOMBSTONE} OR {_EVENT}.op IN ('m', 't') THEN NULL "
        f"WHEN {_EVENT}.op IS NULL THEN 'it is no change of a row by Debezium' "
        f"WHEN {_EVENT}.op NOT IN ('c', 'r', 'u', 'd') THEN concat('it is no "
        f"change of a row by Debezium: its operation is ', {_EVENT}.op) "
        f"WHEN {_ROW} IS NULL THEN {no_row} "
        f"{' '.join(further)} "
        f"WHEN {_EVENT}.op IN ('c', 'r') AND size({UNAVAILABLE}) > 0 THEN {large} END"
    )


def _json_problems(
    row: StructType, optional: Sequence[str], *, evolves: bool
) -> list[str]:
    """Return further conditions for rows of JSON and their problems."""
    names, accepted = _names(row.names), _names([*row.names, *optional])
    needed = _names([name for name in row.names if name not in optional])
    has = f"map_keys({_TEXTS})"
    lacks = f"array_except({needed}, {has})"
    more = f"array_except({has}, {accepted})"
    # A row before a deletion may have its key only.
    is_short = f"{_EVENT}.op <> 'd' AND size({lacks}) > 0"
    unreadable = " ".join(
        f"WHEN {_TEXTS}[{_literal(each.name)}] IS NOT NULL AND "
        f"{_ROW}.{quote(each.name)} IS NULL AND NOT "
        f"array_contains({UNAVAILABLE}, {_literal(each.name)}) THEN "
        f"concat('the column ', {_literal(each.name)}, ' is ', "
        f"left({_TEXTS}[{_literal(each.name)}], {_SHOWN_MAX}), ', which is no ', "
        f"{_literal(each.dataType.simpleString())})"
        for each in row
    )
    corrupt = (
        f"WHEN {_CORRUPT} THEN CASE {unreadable} ELSE concat('it does not fit the "
        f"columns ', array_join({names}, ', ')) END"
    )
    if evolves:
        return [corrupt]
    return [
        (
            f"WHEN {is_short} AND size({more}) > 0 THEN concat('the row has the "
            f"column ', {more}[0], ', and not ', {lacks}[0], ' of the schema; if it "
            "was renamed, correct the schema, and name the other one in "
            "optional_columns')"
        ),
        (
            f"WHEN {is_short} THEN concat('the row has no column ', {lacks}[0], '; "
            "remove it from the schema, or name it in optional_columns, which "
            "makes it null')"
        ),
        (
            f"WHEN size({more}) > 0 THEN concat('the row has the column ', {more}[0], "
            "'; add it to the schema, or name it in optional_columns, which drops it')"
        ),
        corrupt,
    ]


def _is_change(*, skips_errors: bool, has_truncations: bool) -> str:
    """Return the condition that a message changes a row; it fails for other ones."""
    place = "concat('the message at offset ', offset, ' of ', topic, "
    failed = "false" if skips_errors else f"raise_error({place}': ', {_ERROR}))"
    truncation = (
        ""
        if has_truncations
        else f"WHEN {_EVENT}.op = 't' THEN raise_error({place}' truncates the table; "
        "set truncate: apply for the source to empty the tables that it is written "
        "to, truncate: ignore to keep their rows, or skipped.operations=t in "
        "Debezium')) "
    )
    return (
        f"CASE WHEN {_SKIPPED} THEN false "
        f"WHEN {_ERROR} IS NOT NULL THEN {failed} "
        f"WHEN size({_NEW}) > 0 THEN raise_error({place}', partition ', partition, "
        f"'{NEW_COLUMNS}', to_json({_NEW}))) "
        f"{truncation}ELSE true END"
    )


def _is_placeholder(field: StructField) -> str:
    """Return the condition that a decoded value is the placeholder; empty: never."""
    value = f"{_ROW}.{quote(field.name)}"
    text = _literal(PLACEHOLDER)
    match field.dataType:
        case StringType():
            found = f"{value} = {text}"
        case BinaryType():
            found = f"{value} = CAST({text} AS BINARY)"
        case ArrayType(elementType=StringType()):
            found = f"{value} = array({text})"
        case ArrayType(elementType=IntegerType() | LongType() as kind):
            found = f"{value} = {_array_of_bytes(kind)}"
        case MapType(keyType=StringType()):
            found = f"map_keys({value}) = array({text})"
        case _:
            return ""
    return f"coalesce({found}, false)"


def _array_of_bytes(kind: DataType) -> str:
    numbers = ", ".join(map(str, _BYTES))
    return f"CAST(array({numbers}) AS ARRAY<{kind.simpleString()}>)"


def _struct_of(frame: DataFrame, name: str) -> StructType:
    found = frame.schema[name].dataType
    assert isinstance(found, StructType)
    return found


def _names(names: Sequence[str]) -> str:
    return f"CAST(array({', '.join(map(_literal, names))}) AS ARRAY<STRING>)"


def _literal(text: str) -> str:
    """Return *text* as a string literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
