"""
The options of a read.

``OPTIONS`` declares all names; the table in ``docs/guide/spark.md`` is generated from
it.  Options that Spark's Kafka source also has have the same names.
"""

from __future__ import annotations

from pydanube.reader.option_parsing import Option

URL_DEFAULT = "danube://127.0.0.1:6651"


OPTIONS = (
    Option("url", URL_DEFAULT, "The broker; `danube.url` is another name for it."),
    Option(
        "subscribe",
        "",
        "The topics to read, separated by commas. The name of a partitioned topic "
        "includes all its partitions, also those that are added later.",
    ),
    Option(
        "subscribePattern",
        "",
        "A regular expression that must match whole topic names. A stream also finds "
        "topics that are created later, and reads them from their first message.",
    ),
    Option(
        "assign",
        "",
        'The partitions to read, such as `{"/default/orders": [0, 2]}`. Set exactly '
        "one of `subscribe`, `subscribePattern` and `assign`.",
    ),
    Option(
        "filter.partitions",
        "all",
        "The partition numbers to read of every topic, such as `0,2`. A topic without "
        "partitions is partition 0.",
    ),
    Option(
        "startingOffsets",
        "earliest (batch), latest (stream)",
        '`earliest`, `latest`, or JSON such as `{"/default/plain": 23, '
        '"/default/orders": {"0": 23, "1": -2}}` with an offset for every topic, or '
        "for each of its partitions, where -2 is earliest and -1 is latest. A stream "
        "with a checkpoint continues from the checkpoint instead.",
    ),
    Option(
        "startingTimestamp",
        "",
        "Start with the first message that was published at this time or later: "
        "milliseconds since 1970, or a time with its time zone such as "
        "`2026-01-31T12:00:00Z`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        "Such a time for every topic or partition, in milliseconds: "
        '`{"/default/orders": {"0": 1700000000000, "1": 1700000000000}}`. Set only one '
        "of the three options.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What to do if a topic has no message from that time or later: fail with "
        "`error`, or start at its end with `latest`.",
    ),
    Option(
        "endingOffsets",
        "latest",
        "Where to stop, in the format of `startingOffsets`; the message at that offset "
        "is not read.",
        "batch",
    ),
    Option(
        "endingTimestamp",
        "",
        "Stop before the first message that was published at this time or later, or at "
        "the end if there is none.",
        "batch",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "",
        "Such a time for every topic or partition, in milliseconds.",
        "batch",
    ),
    Option(
        "columns",
        "all but `deliver_at` and `expires_at`",
        "The columns to read, such as `offset,payload`. `schema(…)` does the same and "
        "also sets their types.",
    ),
    Option(
        "pushFilters",
        "false",
        "Evaluate conditions on `topic`, `partition`, `offset`, `publish_time` and "
        "`key` in the source, so that it reads less. Only for a DataFrame that is read "
        "once, with one set of conditions: see [Conditions](#conditions).",
        "batch",
    ),
    Option(
        "includeHeaders",
        "true",
        "Whether the default columns include `attributes`.",
    ),
    Option(
        "tail",
        "broker",
        "`none` reads only segments, so that the broker does not serve messages. The "
        "newest messages are then read after they are sealed.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "no limit",
        "The most messages of a micro-batch, divided among the topics in proportion to "
        "what each has waiting.",
        "stream",
    ),
    Option(
        "maxBytesPerTrigger",
        "no limit",
        "Approximately the most bytes of a micro-batch, such as `64m`, counted as they "
        "are stored: compressed in segments. If both limits are set, both apply.",
        "stream",
    ),
    Option(
        "minOffsetsPerTrigger",
        "none",
        "Wait until this many messages are available, or `maxTriggerDelay` has passed. "
        "The triggers `availableNow` and `once` do not wait.",
        "stream",
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        "The longest time after the last micro-batch to wait for "
        "`minOffsetsPerTrigger`, such as `500ms`, `30s`, `15m`, `2h`.",
        "stream",
    ),
    Option(
        "minPartitions",
        "1",
        "The least number of Spark partitions, if there are as many messages.",
    ),
    Option(
        "maxRecordsPerPartition",
        "no limit",
        "The most messages of one Spark partition.",
    ),
    Option(
        "maxBytesPerPartition",
        "33554432",
        "The most bytes of compressed segments in one Spark partition, such as `64m`: "
        "larger ranges are split, and smaller neighbouring segments are merged.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "Fail if messages are gone that were not read yet. `false` continues with the "
        "first message that is left, and logs which messages are missing.",
    ),
    Option(
        "subscription",
        "",
        "Report progress to the broker under this name, so that its tools show the "
        "lag of the query. Only Spark's checkpoint decides what is read.",
        "stream",
    ),
    Option(
        "groupIdPrefix",
        "",
        "Instead of `subscription`: the prefix of a name that ends with a hash of the "
        "topics that the query reads.",
        "stream",
    ),
    Option(
        "decode",
        "false",
        "Add the column `value`, decoded with the subject of the topics.",
    ),
    Option(
        "schemaVersion",
        "latest",
        "The reader schema: the version of the subject whose columns `value` has. "
        "`latest` is the latest version when the query is planned. A stream without "
        "this option keeps the version in its checkpoint.",
    ),
    Option(
        "onUndecodable",
        "fail",
        "What to do if a message cannot be decoded: `fail` ends the query with an "
        "error that names the message; with `null` its `value` is null, and the column "
        "`_error` has the reason.",
    ),
    Option(
        "fetchOffset.numRetries",
        "10",
        "How often a request is retried while the broker cannot be reached.",
    ),
    Option("fetchOffset.retryIntervalMs", "500", "The delay before each retry."),
)
