"""DeleteRecords: removing the messages of partitions before an offset."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from pydanube.model.errors import InvalidRequest
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.errors import HANDLED, Refusal, code_of
from pydanube_kafka.wire.apis import Api, ErrorCode

PARTITIONS_MAX = 10_000
"""The most partitions of a request."""
HIGH_WATERMARK = -1
"""The offset that stands for the end of a partition."""
NO_WATERMARK = -1


async def delete_records(call: Call) -> Awaitable[Any]:
    """Trim partitions, each of which has its own outcome."""
    answers = call.answers
    count = sum(len(each.partitions) for each in call.body.topics)
    if count > PARTITIONS_MAX:
        raise InvalidRequest(
            f"{count} partitions are too many; name {PARTITIONS_MAX} at most"
        )
    topics = []
    for each in call.body.topics:
        results = []
        for wanted in each.partitions:
            code, start = ErrorCode.none, NO_WATERMARK
            try:
                start = await _trim(call, each.name, wanted)
            except HANDLED as error:
                code = code_of(error)
            results.append(
                answers.DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index,
                    low_watermark=start,
                    error_code=code,
                )
            )
        topics.append(
            answers.DeleteRecordsTopicResult(name=each.name, partitions=tuple(results))
        )
    return Done(
        answers.DeleteRecordsResponse(
            throttle_time=call.throttle_time, topics=tuple(topics)
        )
    )


async def _trim(call: Call, name: str, wanted: Any) -> int:
    """Trim one partition; return the first offset that is left."""
    topic = await call.find_topic(Kind.TRIM_TOPIC, name, wanted.partition_index)
    if not isinstance(topic, ReliableTopic):
        raise InvalidRequest(f"{topic.name} is not reliable: its messages are not kept")
    offset = topic.end_offset if wanted.offset == HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= topic.end_offset:
        raise Refusal(
            ErrorCode.offset_out_of_range, f"{topic.name} has no offset {offset}"
        )
    request = pb.TrimTopic(topic=str(topic.name), before=pb.Position(offset=offset))
    return int((await call.do(Kind.TRIM_TOPIC, request)).base_offset)


DELETING: dict[Api, Handler] = {Api.DELETE_RECORDS: delete_records}
