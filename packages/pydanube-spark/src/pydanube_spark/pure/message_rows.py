"""
Rows that become messages: which columns they may have, and the topic of each row.

Batches are split by topic and partition with Arrow's functions.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.envelope import ATTRIBUTES_TYPE, TIME_TYPE
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import PARTITION_MARK, TopicName
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.pure.write_options import Encode, WriteOptions

PAYLOAD = "payload"
VALUE = "value"
TOPIC = "topic"
PARTITION = "partition"

BYTES = (PAYLOAD, "key")
"""The columns that are bytes in a message, also if they are text in a row."""

_TEXT = (pa.binary(), pa.string())
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    PAYLOAD: (
        _TEXT.__contains__,
        "binary or string; a column named value may be of any type",
    ),
    "key": (_TEXT.__contains__, "binary or string"),
    "attributes": (
        lambda has: types.is_map(has) and has.key_type == has.item_type == pa.string(),
        "map<string, string>",
    ),
    TOPIC: (types.is_string, "string"),
    PARTITION: (types.is_integer, "a whole number"),
    "deliver_at": (TIME_TYPE.equals, "timestamp"),
    "expires_at": (TIME_TYPE.equals, "timestamp"),
}
"""The columns that have certain types: a test of the type, and what it must be."""
COLUMNS = (VALUE, *_TYPES)
"""The columns of rows that become messages."""

OFFSET = "offset"
NOT_WRITTEN = frozenset(
    {OFFSET, "publish_time", "producer", "schema_id", "schema_version"}
)
"""Columns of rows that were read from a topic; the target topic sets its own."""


def check_columns(schema: pa.Schema, options: WriteOptions) -> list[str]:
    """Return why rows of *schema* cannot become messages; empty if they can."""
    names = set(schema.names)
    found = [
        f"a message has no column {name!r}"
        + (did_you_mean(name, COLUMNS) or "; struct(*) AS value keeps it")
        for name in schema.names
        if name not in COLUMNS and name not in NOT_WRITTEN
    ]
    if options.topic is None and OFFSET in names:
        found.append(
            "no topic: rows with an offset were read from a topic, and their column "
            "topic is the one they were read from; set the option 'topic', or select "
            "only the columns to write"
        )
    elif options.topic is None and TOPIC not in names:
        found.append(
            "no topic: set the option 'topic', or add a column topic with a name in "
            "each row"
        )
    if PAYLOAD in names and VALUE in names:
        found.append("there are columns payload and value: drop one of them")
    elif PAYLOAD not in names and VALUE not in names:
        found.append(
            "there is neither a column payload (binary or string) nor value (any "
            "type); struct(*) AS value makes one of all columns"
        )
    elif VALUE in names and options.encode is Encode.PAYLOAD:
        found.append(
            "encode=payload: there is a column value; call it payload, or use "
            "encode=auto"
        )
    for field in schema:
        if field.name not in _TYPES or (field.name == TOPIC and options.topic):
            continue
        fits, wanted = _TYPES[field.name]
        if not fits(field.type):
            found.append(f"the column {field.name} must be {wanted}, not {field.type}")
    return found


def split_by_topic(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """
    Yield the messages of *batch*, whose columns were checked, by topic.

    All messages are for *topic* if it is given.  For rows with a partition number the
    yielded name is that of the partition, otherwise that of the whole topic.  In rows
    that were read from a topic, the column ``partition`` is ignored.

    Ordering: Messages of one topic keep their order.

    Raises:
        InvalidRequest: A row lacks a topic, payload or value, or has a negative
            partition or a null attribute.
        InvalidName: A topic's name is malformed.
    """
    names = _topic_names(batch, topic)
    messages = _messages(batch)
    if isinstance(names, str):
        yield names, messages
        return
    encoded = names.dictionary_encode()
    distinct = [str(TopicName.parse(name)) for name in encoded.dictionary.to_pylist()]
    if len(distinct) == 1:
        yield distinct[0], messages
        return
    # sort_indices is stable, so the order within a topic is kept.
    order = pc.sort_indices(encoded.indices)
    messages, begin = messages.take(order), 0
    counts = pc.value_counts(encoded.indices)
    for count in sorted(counts.to_pylist(), key=lambda each: each["values"]):
        yield distinct[count["values"]], messages.slice(begin, count["counts"])
        begin += count["counts"]


def _topic_names(batch: pa.RecordBatch, topic: str | None) -> Any:
    """Return the name of each row's topic, or one name for all."""
    names: Any = topic
    if topic is None:
        _require(batch, TOPIC, "every row names its topic")
        names = batch.column(TOPIC)
    at = batch.schema.get_field_index(PARTITION)
    if (
        at < 0
        or OFFSET in batch.schema.names
        or batch.column(at).null_count == batch.num_rows
    ):
        return names
    numbers = batch.column(at)
    if pc.any(pc.less(numbers, 0)).as_py():
        raise InvalidRequest("a row has a negative number in the column partition")
    if topic is not None:
        names = pa.repeat(topic, batch.num_rows)
    partitions = pc.binary_join_element_wise(
        names, numbers.cast(pa.string()), PARTITION_MARK
    )
    return pc.coalesce(partitions, names)


def _messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Select the message columns of *batch*, in the types of the envelope."""
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        match name:
            case "payload" | "key":
                columns[name] = column.cast(pa.binary())
            case "value" | "deliver_at" | "expires_at":
                columns[name] = column
            case "attributes":
                columns[name] = column.cast(ATTRIBUTES_TYPE)
                if column.items.null_count:
                    raise InvalidRequest(
                        "a row has an attribute that is null; "
                        "map_filter(attributes, (k, v) -> v IS NOT NULL) drops those"
                    )
    for name in (PAYLOAD, VALUE):
        if name in columns:
            _require(batch, name, "every message has one; filter such rows out")
    return pa.record_batch(columns)


def _require(batch: pa.RecordBatch, name: str, why: str) -> None:
    missing = batch.column(name).null_count
    if missing:
        raise InvalidRequest(
            f"the column {name} is null in {missing} of {batch.num_rows} rows: {why}"
        )
