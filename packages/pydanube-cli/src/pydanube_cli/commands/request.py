"""`danube request`: publishes a request, and prints its reply."""

from __future__ import annotations

import sys

import typer

from pydanube.client.messages.messages import MessageBatch
from pydanube.model.errors import MessageTooLarge
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command
from pydanube_cli.messages.message_formats import RENDERERS, Output
from pydanube_cli.presentation.output import print_note
from pydanube_cli.presentation.quantities import parse_attribute, parse_duration

PAYLOAD_BYTES_MAX = 8 * 1024 * 1024
"""The longest request from standard input."""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube request /default/prices -m book",
    "danube request /default/prices -m book --timeout 2s --output json",
    "cat numbers.txt | danube request /default/sort",
)
def request(
    connect: Connect,
    topic: parameters.Topic,
    *,
    message: str | None = None,
    key: str | None = None,
    attribute: list[str] | None = None,
    timeout: str = "10s",
    output: Output = Output.TEXT,
) -> None:
    """
    Publish a request, wait for its reply, and print the reply.

    A consumer of the topic replies, for example danube reply. The command fails if it
    reports an error, or if no reply arrives in time.

    Args:
        message (-m TEXT): The request; by default the whole standard input.
        key (-k TEXT): The key of the request.
        attribute (-a NAME=VALUE): An attribute of the request; may be repeated.
        timeout (DURATION): How long to wait for the reply.
        output (--output -o --format text|json): text prints the payload and a newline
            on a terminal, and only the payload otherwise; json prints one JSON object,
            as danube consume does.
    """
    payload = _payload(message)
    with connect() as client:
        reply = client.request(
            topic,
            payload,
            timeout_s=parse_duration(timeout),
            key=key,
            attributes=dict(map(parse_attribute, attribute or [])),
        )
    text = reply.payload
    if output is Output.JSON or sys.stdout.isatty():
        text = b"".join(RENDERERS[output, False](MessageBatch.of(reply.topic, [reply])))
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _payload(message: str | None) -> bytes:
    if message is not None:
        return message.encode(errors="surrogateescape")
    if sys.stdin.isatty():
        print_note("Type the request; press Ctrl-D to end it.")
    payload = sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise MessageTooLarge(
            f"the request on standard input is longer than {PAYLOAD_BYTES_MAX} bytes"
        )
    return payload
