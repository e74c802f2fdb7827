"""A pipeline that meets new columns of a change feed in its first micro-batch."""

from deltalake import DeltaTable

from support.drivers.pipelines import send, unique_topic

PIPELINE = """\
name: evolving
# Slow machines start Python processes slowly.
spark:
  slow_starts: {{count: 1000, backoff: 1s, backoff_max: 10s}}
sources:
  feed: {{topic: {topic}, cdc: debezium, schema: "id BIGINT, name STRING",
         schema_changes: evolve}}
sinks:
  merged:
    input: feed
    format: danube-delta
    path: merged
    table: {{key: id, order: [_ts, _offset], delete: "_op = 'd'"}}
"""

ROWS = [
    {"id": 1, "name": "ada", "age": None, "note": None},
    {"id": 2, "name": "bob", "age": 7, "note": None},
    {"id": 3, "name": "eve", "age": None, "note": "new"},
]


def write_evolving(client, directory):
    """Publish changes, and write the file of the pipeline that reads them."""
    topic = unique_topic(client)
    changes = [
        {name: value for name, value in row.items() if value is not None}
        for row in ROWS
    ]
    send(client, topic, *({"op": "c", "ts_ms": 1, "after": row} for row in changes))
    file = directory / "evolving.yaml"
    file.write_text(PIPELINE.format(topic=topic))
    return file


def assert_evolved(directory, output):
    """Assert that the table has all columns and rows, and that *output* says so."""
    rows = DeltaTable(str(directory / "merged")).to_pyarrow_table().to_pylist()
    found = [{name: row[name] for name in ROWS[0]} for row in rows]
    assert sorted(found, key=lambda row: row["id"]) == ROWS
    assert "starting again with the new columns age BIGINT" in output
