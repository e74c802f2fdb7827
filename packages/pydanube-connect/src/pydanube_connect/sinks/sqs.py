"""A sink that sends messages to a queue of Amazon SQS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.aws_connection import AwsAccess, aws_problems
from pydanube_connect.sinks.aws_batches import AwsBatchSink, Failure, failures_in
from pydanube_connect.sinks.pure.aws_entries import (
    Entry,
    attributes_of,
    ordering_of,
    text_of,
)
from pydanube_connect.sqs_queues import queue_problems, url_of


class SqsSinkOptions(AwsAccess, frozen=True, kw_only=True):
    """The options of ``SqsSink``."""

    queue: Annotated[str, Meta(description="The name or the URL of the queue.")]


class SqsSink(AwsBatchSink):
    """
    Sends messages to a queue of Amazon SQS, with their attributes.

    Delivery: at least once; in a FIFO queue once within five minutes, and messages with
    the same key keep their order.
    """

    Options = SqsSinkOptions
    service = "sqs"

    def __init__(self, options: SqsSinkOptions) -> None:
        super().__init__(options)
        self._url: str | None = None

    @classmethod
    def problems(cls, options: SqsSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        return aws_problems(options) | queue_problems(options.queue)

    async def check(self) -> None:
        """Ask for the queue."""
        url = await url_of(self.client, self.options.queue)
        await self.client.call("get_queue_attributes", QueueUrl=url)

    def fields_of(self, message: Message) -> dict[str, Any]:
        """Return the entry of *message*; see ``AwsBatchSink``."""
        found: dict[str, Any] = {"MessageBody": text_of(message)}
        if attributes := attributes_of(message):
            found["MessageAttributes"] = attributes
        if self.options.queue.endswith(".fifo"):
            found |= ordering_of(message)
        return found

    async def send(self, entries: Sequence[Entry]) -> Mapping[int, Failure]:
        """Send a request; see ``AwsBatchSink``."""
        if self._url is None:
            self._url = await url_of(self.client, self.options.queue)
        given = [{"Id": str(at), **each.fields} for at, each in enumerate(entries)]
        answer = await self.client.call(
            "send_message_batch", QueueUrl=self._url, Entries=given
        )
        return failures_in(answer)
