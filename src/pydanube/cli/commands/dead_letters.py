"""`danube dead-letters`: list, show, replay and drop dead letters."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import confirm, run_with_client
from pydanube.cli.commands.consume import fields_of
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_table,
    printable,
)
from pydanube.cli.parameters import Subscription, command_group, examples
from pydanube.cli.progress_line import progress_line
from pydanube.client.client import DEFAULT_URL
from pydanube.client.dead_letters import CHUNK_LETTERS_MAX
from pydanube.model.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pydanube.client.client import Client
    from pydanube.client.dead_letters import DeadLetter, DeadLetters
    from pydanube.client.messages import Message

SHOWN_CHARACTERS = 40

app = command_group(
    "List, show, replay and drop dead letters.",
    "danube dead-letters list /default/orders -s billing",
    "danube dead-letters replay /default/orders -s billing --reason timeout",
)

DeadLetterTopic = Annotated[
    str | None,
    typer.Option(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="The dead-letter topic; by default the one of the subscription's failure "
        "policy.",
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Only dead letters whose reason contains this text.",
    ),
]
Offsets = Annotated[
    list[int] | None,
    typer.Option(
        "--offset",
        metavar="OFFSET",
        help="Only the dead letter at this offset of the dead-letter topic; may be "
        "repeated.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        min=1,
        metavar="COUNT",
        help="At most this number of dead letters, oldest first.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """A filter of dead letters."""

    reason: str | None = None
    offsets: frozenset[int] | None = None
    limit: int | None = None

    async def select(self, dead_letters: DeadLetters) -> AsyncIterator[DeadLetter]:
        """Yield the selected ones of *dead_letters*."""
        count = 0
        async for letter in dead_letters.letters():
            if self.matches(letter):
                yield letter
                count += 1
                if count == self.limit:
                    return

    def matches(self, letter: DeadLetter) -> bool:
        """Return whether *letter* is selected."""
        return (self.reason is None or self.reason in letter.reason) and (
            self.offsets is None or letter.id.offset in self.offsets
        )


@app.command(
    "list",
    epilog=examples(
        "danube dead-letters list /default/orders -s billing",
        "danube dead-letters list /default/orders -s billing --reason timeout -n 20",
    ),
)
def list_(
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    reason: Reason = None,
    limit: Limit = None,
    dead_letter_topic: DeadLetterTopic = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """List dead letters that were neither replayed nor dropped, oldest first."""
    filter_ = DeadLetterFilter(reason=reason, limit=limit)
    is_json = output_format is OutputFormat.JSON

    async def call(client: Client) -> list[Any]:
        dead_letters = client.dead_letters(
            topic, subscription, dead_letter_topic=dead_letter_topic
        )
        return await _list(dead_letters, filter_, is_json=is_json)

    _print_list(run_with_client(url, call), output_format)


@app.command(epilog=examples("danube dead-letters show /default/orders -s billing 17"))
def show(
    topic: parameters.Topic,
    offset: Annotated[
        int,
        typer.Argument(
            metavar="OFFSET",
            help="The offset of the dead letter in its topic, as 'danube dead-letters "
            "list' shows it.",
            show_default=False,
        ),
    ],
    *,
    subscription: Subscription,
    dead_letter_topic: DeadLetterTopic = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Show one dead letter with its payload and all its failures."""
    filter_ = DeadLetterFilter(offsets=frozenset([offset]), limit=1)

    async def call(client: Client) -> list[DeadLetter]:
        dead_letters = client.dead_letters(
            topic, subscription, dead_letter_topic=dead_letter_topic
        )
        return [letter async for letter in filter_.select(dead_letters)]

    letters = run_with_client(url, call)
    if not letters:
        raise NotFound(
            f"subscription {subscription} of {topic} has no dead letter at offset "
            f"{offset}"
        )
    if output_format is OutputFormat.JSON:
        print_json(_fields(letters[0]))
    else:
        _print_letter(letters[0])


@app.command(
    epilog=examples(
        "danube dead-letters replay /default/orders -s billing --dry-run",
        "danube dead-letters replay /default/orders -s billing --offset 17 --yes",
    )
)
def replay(
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    reason: Reason = None,
    offset: Offsets = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: parameters.Yes = False,
    dead_letter_topic: DeadLetterTopic = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Publish dead letters again to the topic where they failed.

    Each keeps its key, payload and attributes, including those that describe its
    failures, and is no longer listed. All subscriptions of the topic receive it, so
    other subscriptions may receive the message twice.
    """
    if not dry_run:
        confirm(f"Publish dead letters again to {topic}?", is_sure=yes)

    async def call(client: Client) -> list[Any] | int:
        dead_letters = client.dead_letters(
            topic, subscription, dead_letter_topic=dead_letter_topic
        )
        filter_ = _filter(reason, offset, limit)
        if dry_run:
            return await _list(
                dead_letters, filter_, is_json=output_format is OutputFormat.JSON
            )
        return await _handle("replaying", dead_letters, filter_, dead_letters.replay)

    _report("replayed", run_with_client(url, call), output_format)


@app.command(
    epilog=examples(
        "danube dead-letters drop /default/orders -s billing --reason 'no such user'",
    )
)
def drop(
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    reason: Reason = None,
    offset: Offsets = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: parameters.Yes = False,
    dead_letter_topic: DeadLetterTopic = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Mark dead letters as handled without replaying them.

    They are no longer listed. Their messages stay in the dead-letter topic until its
    retention removes them.
    """
    if not dry_run:
        confirm(f"Drop dead letters of {subscription} of {topic}?", is_sure=yes)

    async def call(client: Client) -> list[Any] | int:
        dead_letters = client.dead_letters(
            topic, subscription, dead_letter_topic=dead_letter_topic
        )
        filter_ = _filter(reason, offset, limit)
        if dry_run:
            return await _list(
                dead_letters, filter_, is_json=output_format is OutputFormat.JSON
            )
        return await _handle("dropping", dead_letters, filter_, dead_letters.drop)

    _report("dropped", run_with_client(url, call), output_format)


def _filter(
    reason: str | None, offsets: list[int] | None, limit: int | None
) -> DeadLetterFilter:
    wanted = None if offsets is None else frozenset(offsets)
    return DeadLetterFilter(reason=reason, offsets=wanted, limit=limit)


async def _list(
    dead_letters: DeadLetters, filter_: DeadLetterFilter, *, is_json: bool
) -> list[Any]:
    """
    Return the fields to list; the dead letters would keep whole batches in memory.
    """
    describe = _fields if is_json else _row
    return [describe(letter) async for letter in filter_.select(dead_letters)]


async def _handle(
    action: str,
    dead_letters: DeadLetters,
    filter_: DeadLetterFilter,
    handle: Callable[[list[DeadLetter]], Awaitable[int]],
) -> int:
    """Handle the selected dead letters in groups, and return how many there were."""
    count = 0
    with progress_line(action, is_shown=sys.stderr.isatty()) as show:
        portion: list[DeadLetter] = []
        async for letter in filter_.select(dead_letters):
            portion.append(letter)
            if len(portion) == CHUNK_LETTERS_MAX:
                count += await handle(portion)
                show(f"{action}: {_count_text(count)}", count)
                portion = []
        return count + await handle(portion)


def _report(done: str, answer: list[Any] | int, output_format: OutputFormat) -> None:
    if isinstance(answer, list):
        _print_list(answer, output_format)
        print_note(f"{_count_text(len(answer))} would be {done}.")
    elif output_format is OutputFormat.JSON:
        print_json({done: answer})
    else:
        print_line(f"{_count_text(answer)} {done}.")


def _count_text(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def _print_list(listed: list[Any], output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print_json(listed)
    else:
        columns = ("Offset", "Was", "Deliveries", "Published", "Key", "Payload")
        print_table((*columns, "Reason"), listed)


def _row(letter: DeadLetter) -> tuple[object, ...]:
    message = letter.message
    return (
        str(letter.id.offset),
        _origin(letter),
        letter.attempt,
        _publish_time(message),
        message.key,
        _preview(message.payload),
        letter.reason,
    )


def _fields(letter: DeadLetter) -> dict[str, Any]:
    return {
        "offset": letter.id.offset,
        "original_topic": letter.topic,
        "original_offset": letter.offset,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "history": letter.history,
        "message": fields_of(letter.message),
    }


def _print_letter(letter: DeadLetter) -> None:
    message = letter.message
    print_fields(
        [
            ("Offset", str(letter.id.offset)),
            ("Was", _origin(letter)),
            ("Published", _publish_time(message)),
            ("Producer", message.producer),
            ("Key", message.key),
            ("Deliveries", letter.attempt),
            ("Reason", letter.reason),
            *(
                (f"Before that, {index}.", _failure_text(failure))
                for index, failure in enumerate(reversed(letter.history), 1)
            ),
            *sorted(message.attributes.items()),
        ]
    )
    print_line()
    print_line(printable(message.payload.decode(errors="backslashreplace")))


def _origin(letter: DeadLetter) -> str:
    return f"{letter.topic} {'' if letter.offset is None else letter.offset}".strip()


def _failure_text(failure: dict[str, Any]) -> str:
    where = f"{failure.get('topic', '')} {failure.get('offset', '')}"
    return f"{where}, deliveries: {failure.get('attempt', '')}, {failure.get('reason')}"


def _publish_time(message: Message) -> str:
    return message.publish_time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _preview(payload: bytes) -> str:
    text = printable(payload[: 4 * SHOWN_CHARACTERS].decode(errors="backslashreplace"))
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return text[: SHOWN_CHARACTERS - 1] + "\u2026"
