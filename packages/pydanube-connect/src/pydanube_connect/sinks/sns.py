"""A sink that publishes messages to a topic of Amazon SNS."""

from __future__ import annotations

import re
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

_ARN = re.compile(r"arn:[a-z-]+:sns:[a-z0-9-]+:\d+:[A-Za-z0-9_-]+(\.fifo)?")


class SnsSinkOptions(AwsAccess, frozen=True, kw_only=True):
    """The options of ``SnsSink``."""

    topic: Annotated[
        str,
        Meta(
            description="The ARN of the topic, such as "
            "`arn:aws:sns:eu-central-1:123456789012:alerts`."
        ),
    ]


class SnsSink(AwsBatchSink):
    """
    Publishes messages to a topic of Amazon SNS, with their attributes.

    Delivery: at least once; to a FIFO topic once within five minutes, and messages with
    the same key keep their order.
    """

    Options = SnsSinkOptions
    service = "sns"

    @classmethod
    def problems(cls, options: SnsSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = aws_problems(options)
        if not _ARN.fullmatch(options.topic):
            found["topic"] = f"{options.topic!r} is not the ARN of a topic"
        return found

    async def check(self) -> None:
        """Ask for the topic."""
        topic = self.options.topic
        await self.client.call("get_topic_attributes", TopicArn=topic)

    def fields_of(self, message: Message) -> dict[str, Any]:
        """Return the entry of *message*; see ``AwsBatchSink``."""
        found: dict[str, Any] = {"Message": text_of(message)}
        if attributes := attributes_of(message):
            found["MessageAttributes"] = attributes
        if self.options.topic.endswith(".fifo"):
            found |= ordering_of(message)
        return found

    async def send(self, entries: Sequence[Entry]) -> Mapping[int, Failure]:
        """Send a request; see ``AwsBatchSink``."""
        given = [{"Id": str(at), **each.fields} for at, each in enumerate(entries)]
        answer = await self.client.call(
            "publish_batch",
            TopicArn=self.options.topic,
            PublishBatchRequestEntries=given,
        )
        return failures_in(answer)
