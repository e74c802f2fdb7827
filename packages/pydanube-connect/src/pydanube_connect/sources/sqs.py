"""A source of messages in a queue of Amazon SQS, deleted when they are stored."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from pydanube.aio.tasks import task_scope
from pydanube_connect.aws_connection import (
    AwsAccess,
    AwsClient,
    aws_client,
    aws_problems,
)
from pydanube_connect.connector import Source
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.pure.records import Batch, Record, Refusals
from pydanube_connect.sqs_queues import queue_problems, url_of

WAIT_S = 5
"""How long a request waits for messages; the connector may take as long to stop."""
MESSAGES_MAX = 10
"""The most messages in an answer of SQS."""
DELETE_S = 10.0
"""How long the deletion of stored messages may take at the end."""


class SqsOptions(AwsAccess, frozen=True, kw_only=True):
    """The options of ``SqsSource``."""

    queue: Annotated[str, Meta(description="The name or the URL of the queue.")]
    receivers: Annotated[
        int, Meta(description="How many requests for messages run at the same time.")
    ] = 2


class SqsSource(Source):
    """
    Publishes the messages of a queue of Amazon SQS.

    Delivery: at least once; once within the window of `deduplicate`. A message that is
    not stored within the visibility timeout of the queue comes again.
    """

    Options = SqsOptions
    extra = "aws"
    has_positions = False

    @classmethod
    def problems(cls, options: SqsOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = aws_problems(options) | queue_problems(options.queue)
        if not 1 <= options.receivers <= 50:
            found["receivers"] = "must be 1 to 50"
        return found

    async def check(self) -> None:
        """Ask for the queue."""
        async with aws_client("sqs", self.options) as client:
            url = await url_of(client, self.options.queue)
            await client.call("get_queue_attributes", QueueUrl=url)

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Receive messages, and delete those that are stored."""
        del position
        options: SqsOptions = self.options
        async with (
            # Deletions do not wait for receivers.
            aws_client("sqs", options, calls_max=options.receivers) as client,
            aws_client("sqs", options, calls_max=options.receivers) as deleting,
            task_scope() as tasks,
        ):
            url = await url_of(client, options.queue)
            deletions: set[asyncio.Future[None]] = set()

            def on_stored(receipts: Sequence[str], _: Refusals) -> None:
                future = tasks.start(_delete(deleting, url, receipts))
                deletions.add(future)
                future.add_done_callback(deletions.discard)

            def receive() -> asyncio.Future[list[dict[str, Any]]]:
                return tasks.start(_receive(client, url))

            pending = {receive() for _ in range(options.receivers)}
            try:
                while True:
                    done, pending = await asyncio.wait(
                        pending, return_when=asyncio.FIRST_COMPLETED
                    )
                    for each in done:
                        messages = await each
                        pending.add(receive())
                        if messages:
                            receipts = [found["ReceiptHandle"] for found in messages]
                            yield Batch(
                                [_record(found) for found in messages],
                                on_stored=partial(on_stored, receipts),
                            )
            finally:
                if deletions:
                    await asyncio.wait(deletions, timeout=DELETE_S)


async def _receive(client: AwsClient, url: str) -> list[dict[str, Any]]:
    answer = await client.call(
        "receive_message",
        QueueUrl=url,
        MaxNumberOfMessages=MESSAGES_MAX,
        WaitTimeSeconds=WAIT_S,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["MessageGroupId", "SentTimestamp"],
    )
    found: list[dict[str, Any]] = answer.get("Messages", [])
    return found


async def _delete(client: AwsClient, url: str, receipts: Sequence[str]) -> None:
    # They come again if they are not deleted.
    with suppress(Transient, ConnectorFailed):
        await client.call(
            "delete_message_batch",
            QueueUrl=url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": each}
                for number, each in enumerate(receipts)
            ],
        )


def _record(message: dict[str, Any]) -> Record:
    attributes = {
        name: facts["StringValue"]
        if "StringValue" in facts
        else b64encode(facts.get("BinaryValue", b"")).decode()
        for name, facts in message.get("MessageAttributes", {}).items()
    }
    system = message.get("Attributes", {})
    attributes["sqs.message_id"] = message["MessageId"]
    if "SentTimestamp" in system:
        attributes["sqs.sent"] = system["SentTimestamp"]
    return Record(
        value=message["Body"],
        key=system.get("MessageGroupId"),
        id=message["MessageId"],
        attributes=attributes,
    )
