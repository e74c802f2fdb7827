"""A sink that puts messages into a stream of Amazon Kinesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.aws_connection import AwsAccess, aws_problems
from pydanube_connect.kinesis_streams import stream_problems
from pydanube_connect.sinks.aws_batches import AwsBatchSink, Failure
from pydanube_connect.sinks.pure.aws_entries import Entry, NoEntry, partition_key_of

RECORD_BYTES_MAX = 1024 * 1024


class KinesisSinkOptions(AwsAccess, frozen=True, kw_only=True):
    """The options of ``KinesisSink``."""

    stream: Annotated[str, Meta(description="The name of the stream.")]


class KinesisSink(AwsBatchSink):
    """
    Puts messages into a stream of Amazon Kinesis; the key is the partition key.

    Delivery: at least once. Kinesis has no attributes.
    """

    Options = KinesisSinkOptions
    service = "kinesis"
    count_max: ClassVar[int] = 500
    bytes_max: ClassVar[int] = 5 * 1024 * 1024

    @classmethod
    def problems(cls, options: KinesisSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        return aws_problems(options) | stream_problems(options.stream)

    async def check(self) -> None:
        """Ask for the stream."""
        name = self.options.stream
        await self.client.call("describe_stream_summary", StreamName=name)

    def fields_of(self, message: Message) -> dict[str, Any]:
        """Return the entry of *message*; see ``AwsBatchSink``."""
        key = partition_key_of(message)
        if len(message.payload) + len(key.encode()) > RECORD_BYTES_MAX:
            raise NoEntry(
                f"the payload and the key have more than {RECORD_BYTES_MAX:,} bytes"
            )
        return {"Data": message.payload, "PartitionKey": key}

    async def send(self, entries: Sequence[Entry]) -> Mapping[int, Failure]:
        """Send a request; see ``AwsBatchSink``."""
        answer = await self.client.call(
            "put_records",
            StreamName=self.options.stream,
            Records=[each.fields for each in entries],
        )
        return {
            at: Failure(f"{each.get('ErrorMessage')} ({code})", is_final=False)
            for at, each in enumerate(answer["Records"])
            if (code := each.get("ErrorCode"))
        }
