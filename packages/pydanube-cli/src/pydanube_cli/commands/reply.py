"""`danube reply`: replies to requests with the output of a program, or an echo."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import tempfile
from typing import Annotated

import typer

from pydanube.client.client import DEFAULT_URL, connect
from pydanube.client.messages.messages import Message
from pydanube.client.workers.request_reply import address_of
from pydanube.model.errors import InvalidRequest, MessageTooLarge
from pydanube.model.quantity_formats import format_count
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.presentation.output import print_note
from pydanube_cli.presentation.quantities import parse_duration

PAYLOAD_BYTES_MAX = 8 * 1024 * 1024
"""The longest output of a program."""
ACK_SLACK_S = 30.0
"""A request is delivered again this long after its program should have ended."""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube reply /default/prices",
    "danube reply /default/prices --exec 'jq -c .price'",
    "danube reply /default/sort --exec 'sort -n' --exec-timeout 5s -n 100",
)
def reply(
    topic: parameters.Topic,
    *,
    subscription: str = "reply",
    program: str | None = None,
    exec_timeout: str = "30s",
    count: Annotated[int | None, typer.Option(min=1)] = None,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Reply to the requests of a topic, with the output of a program or an echo.

    The program runs once for each request, without a shell: it reads the payload on
    standard input, and what it writes on standard output is the reply. If it fails,
    the reply is an error. Several of these commands share the requests. Ctrl-C ends the
    command after the current request. Messages that are not requests are skipped.

    Args:
        subscription (-s NAME): The shared subscription, which is created if it does
            not exist; a new one begins with the next request.
        program (--exec COMMAND): The program and its arguments, in quotes; by default
            the reply is the request's own payload.
        exec_timeout (DURATION): Kill the program after this time, and reply with an
            error.
        count (-n COUNT): Stop after this number of requests; by default never.
    """
    arguments = None if program is None else parse_program(program)
    timeout_s = parse_duration(exec_timeout)

    async def work(interruption: Interruption) -> None:
        replied = 0
        async with (
            connect(url) as client,
            client.consumer(
                topic,
                subscription=subscription,
                type="shared",
                ack_timeout_s=timeout_s + ACK_SLACK_S,
                prefetch_messages=1,
            ) as consumer,
        ):
            print_note(f"Replying to requests on {topic}; press Ctrl-C to stop.")
            while not interruption.is_requested and replied != count:
                message: Message | None = None
                async with interruption.until_requested():
                    message = await consumer.receive()
                if message is None:
                    break
                with interruption.shielded(timeout_s):
                    replied += await _answer(message, arguments, timeout_s)
        print_note(f"Replied to {format_count(replied)} requests.")

    run(work)


async def _answer(message: Message, program: list[str] | None, timeout_s: float) -> int:
    """Reply to *message* and acknowledge it; return the number of replies."""
    try:
        address_of(message)
    except InvalidRequest as error:
        print_note(f"Skipped: {error}.")
        await message.ack()
        return 0
    output, failure = message.payload, None
    if program is not None:
        output, failure = await run_program(program, message.payload, timeout_s)
    try:
        await message.reply(output, error=failure)
    except MessageTooLarge as error:
        await message.reply(b"", error=str(error))
    await message.ack()
    return 1


def parse_program(text: str) -> list[str]:
    """
    Return the program and the arguments of ``--exec``.

    Raises:
        InvalidRequest: A quote is open, or there is no such program.
    """
    try:
        program = shlex.split(text)
    except ValueError as error:
        raise InvalidRequest(f"--exec {text!r} is not a command: {error}") from error
    if not program or shutil.which(program[0]) is None:
        raise InvalidRequest(
            f"--exec {text!r} does not begin with a program that can be run: check its "
            "spelling and PATH; for shell syntax, use sh -c '…'"
        )
    return program


async def run_program(
    program: list[str], payload: bytes, timeout_s: float
) -> tuple[bytes, str | None]:
    """
    Run *program* with *payload* on standard input; return its output and its error.

    Bounds: It kills a program that writes more than ``PAYLOAD_BYTES_MAX`` bytes, or
        runs for longer than *timeout_s*.
    """
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(payload)
        standard_input.seek(0)
        process = await asyncio.create_subprocess_exec(
            *program, stdin=standard_input, stdout=asyncio.subprocess.PIPE
        )
    assert process.stdout is not None
    output = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            while data := await process.stdout.read(64 * 1024):
                output += data
                if len(output) > PAYLOAD_BYTES_MAX:
                    return b"", f"the output exceeds {PAYLOAD_BYTES_MAX} bytes"
            status = await process.wait()
    except TimeoutError:
        return b"", f"the program did not end within {timeout_s:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return bytes(output), f"the program ended with status {status}" if status else None
