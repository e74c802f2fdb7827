"""
The names that ``option(...)`` takes when topics are read, and what each means.

``OPTIONS`` is the one place that knows them: parsing refuses any other, and the
table in ``docs/guide/spark.md`` is made from it.  Where an option means what one of
Spark's Kafka source means, it has that name.
"""

from __future__ import annotations

from dataclasses import dataclass

URL_DEFAULT = "danube://127.0.0.1:6651"


@dataclass(frozen=True, slots=True)
class Option:
    """One name that ``option(...)`` takes."""

    name: str
    default: str
    meaning: str
    where: str = "batch, stream"


OPTIONS = (
    Option("url", URL_DEFAULT, "The broker; `danube.url` is another name for it."),
    Option(
        "subscribe",
        "",
        "The topics to read, separated by commas. The name of a topic with partitions "
        "means all of them, also those that it gets later.",
    ),
    Option(
        "subscribePattern",
        "",
        "A regular expression that whole topic names match; a stream also finds "
        "topics that are created later, and reads them from their first message.",
    ),
    Option(
        "assign",
        "",
        'Only these partitions: `{"/default/orders": [0, 2]}`. Exactly one of '
        "`subscribe`, `subscribePattern` and `assign` is given.",
    ),
    Option(
        "filter.partitions",
        "all",
        "Only partitions with these numbers, such as `0,2`, of every topic; a topic "
        "without partitions is partition 0.",
    ),
    Option(
        "startingOffsets",
        "earliest (batch), latest (stream)",
        '`earliest`, `latest`, or JSON such as `{"/default/plain": 23, '
        '"/default/orders": {"0": 23, "1": -2}}` with an offset for every topic, or '
        "for each of its partitions, where -2 is earliest and -1 is latest. A stream "
        "that finds a checkpoint goes on from there instead.",
    ),
    Option(
        "startingTimestamp",
        "",
        "Start with the first message that was published then or later: milliseconds "
        "since 1970, or a time with its zone such as `2026-01-31T12:00:00Z`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'The same with milliseconds for every topic or partition: `{"/default/orders": '
        '{"0": 1700000000000, "1": 1700000000000}}`. Only one of the three is given.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What if a topic has no message of then or later yet: `error`, or start at "
        "its end with `latest`.",
    ),
    Option(
        "endingOffsets",
        "latest",
        "Where to stop, as for `startingOffsets`; the offset itself is not read.",
        "batch",
    ),
    Option(
        "endingTimestamp",
        "",
        "Stop before the first message that was published then or later; at the end "
        "if there is none.",
        "batch",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "",
        "The same with milliseconds for every topic or partition.",
        "batch",
    ),
    Option(
        "columns",
        "all but `deliver_at` and `expires_at`",
        "The columns that there are, such as `offset,payload`: only these are read. "
        "`schema(…)` does the same and says types, too.",
    ),
    Option(
        "pushFilters",
        "false",
        "Carry out conditions on `topic`, `partition`, `offset`, `publish_time` and "
        "`key` here, so that less is read. Only for a DataFrame that is read once, "
        "with one set of conditions: see [Conditions](#conditions).",
        "batch",
    ),
    Option(
        "includeHeaders",
        "true",
        "Whether there is a column `attributes`.",
    ),
    Option(
        "tail",
        "broker",
        "`none` reads sealed segments only, so that the broker serves no messages; "
        "what was published last is read when it is sealed.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "no limit",
        "The most messages of one micro-batch, shared out over the topics in "
        "proportion to what each has waiting.",
        "stream",
    ),
    Option(
        "maxBytesPerTrigger",
        "no limit",
        "About the most bytes of one micro-batch, such as `64m`, as they are stored: "
        "compressed in segments. With both limits the smaller one holds.",
        "stream",
    ),
    Option(
        "minOffsetsPerTrigger",
        "none",
        "Wait until there are so many messages, or until `maxTriggerDelay` is over. "
        "`availableNow` and `once` do not wait.",
        "stream",
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        "How long after the last micro-batch the next one runs, however few messages "
        "there are; such as `500ms`, `30s`, `15m`, `2h`.",
        "stream",
    ),
    Option(
        "minPartitions",
        "1",
        "Cut into at least so many Spark partitions, if there are as many messages.",
    ),
    Option(
        "maxRecordsPerPartition",
        "no limit",
        "The most messages of one Spark partition.",
    ),
    Option(
        "maxBytesPerPartition",
        "33554432",
        "Cut larger stretches, and join neighbouring smaller segments up to this size, "
        "such as `64m`; counts the bytes of the compressed segments.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "Fail if messages are gone that were not read yet; `false` goes on with the "
        "first message that is still there and logs what is missing.",
    ),
    Option(
        "subscription",
        "",
        "Report progress to the broker under this name, so that the lag of the query "
        "shows in its tools. Spark's checkpoint alone decides what is read.",
        "stream",
    ),
    Option(
        "groupIdPrefix",
        "",
        "Instead of `subscription`: a name that begins so and ends with a fingerprint "
        "of which topics the query reads.",
        "stream",
    ),
    Option(
        "decode",
        "false",
        "Add the column `value`, decoded by the subject that the topics are bound to.",
    ),
    Option(
        "schemaVersion",
        "latest",
        "The version of the subject whose columns `value` has; `latest` is the one "
        "when the query is planned. A stream without this option goes on with the "
        "version in its checkpoint.",
    ),
    Option(
        "onUndecodable",
        "fail",
        "What if a message cannot be decoded: `fail` ends the query and says which; "
        "with `null` its `value` is null and the column `_error` says why.",
    ),
    Option(
        "fetchOffset.numRetries",
        "10",
        "How often a request is repeated while the broker cannot be reached.",
    ),
    Option(
        "fetchOffset.retryIntervalMs", "500", "How long to wait before each repetition."
    ),
)
