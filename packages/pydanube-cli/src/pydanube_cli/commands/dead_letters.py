"""`danube dead-letters`: list, show, replay and drop dead letters."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Iterator
from contextlib import closing, contextmanager
from inspect import cleandoc
from itertools import islice
from typing import Annotated, Any, cast

import typer

from pydanube.client.consumers.dead_letters import CHUNK_MESSAGES_MAX, DeadLetter
from pydanube.model.errors import NotFound
from pydanube.model.quantity_formats import format_time
from pydanube.model.shown_text import excerpt, printable
from pydanube.sync import DeadLetters
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import FormatOption, Subscription, command_group
from pydanube_cli.messages.message_formats import fields_of
from pydanube_cli.presentation.output import (
    Columns,
    Fields,
    OutputFormat,
    Result,
    Table,
    cells_of,
    print_note,
)
from pydanube_cli.presentation.progress_line import progress_line

SHOWN_CHARACTERS = 40

app = command_group(
    "List, show, replay and drop dead letters.",
    "danube dead-letters list /default/orders -s billing",
    "danube dead-letters replay /default/orders -s billing --reason timeout",
)

DeadLetterTopic = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        help="The dead-letter topic; by default the one of the subscription's failure "
        "policy.",
        show_default=False,
    ),
]


@contextmanager
def _selected(
    connect: Connect,
    topic: str,
    subscription: str,
    *,
    dead_letter_topic: str | None,
    reason: str | None = None,
    offsets: Collection[int] | None = None,
    limit: int | None = None,
) -> Iterator[tuple[DeadLetters, Iterator[DeadLetter]]]:
    """Yield all dead letters of a subscription, and the selected ones."""
    with connect() as client:
        dead_letters = client.dead_letters(
            topic, subscription, dead_letter_topic=dead_letter_topic
        )
        found = cast("Generator[DeadLetter, None, None]", dead_letters.messages())
        with closing(found):
            matching = (
                letter
                for letter in found
                if (reason is None or reason in letter.reason)
                and (offsets is None or letter.id.offset in offsets)
            )
            yield dead_letters, islice(matching, limit)


@command(
    app,
    "danube dead-letters list /default/orders -s billing",
    "danube dead-letters list /default/orders -s billing --reason timeout -n 20",
    name="list",
)
def list_(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    reason: str | None = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    dead_letter_topic: DeadLetterTopic = None,
    output_format: FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    List dead letters that were neither replayed nor dropped, oldest first.

    Args:
        reason (TEXT): Only dead letters whose reason contains this text.
        limit (-n COUNT): At most this number of dead letters, oldest first.
    """
    with _selected(
        connect,
        topic,
        subscription,
        dead_letter_topic=dead_letter_topic,
        reason=reason,
        limit=limit,
    ) as (_, selected):
        rows = _rows(selected, output_format)
    return Result(rows, Table(COLUMNS, rows))


@command(app, "danube dead-letters show /default/orders -s billing 17")
def show(
    connect: Connect,
    topic: parameters.Topic,
    offset: int,
    *,
    subscription: Subscription,
    dead_letter_topic: DeadLetterTopic = None,
) -> Result:
    """
    Show one dead letter with its payload and all its failures.

    Args:
        offset (OFFSET): The offset of the dead letter in its topic, as 'danube
            dead-letters list' shows it.
    """
    with _selected(
        connect,
        topic,
        subscription,
        dead_letter_topic=dead_letter_topic,
        offsets=[offset],
    ) as (_, selected):
        letter = next(selected, None)
    if letter is None:
        raise NotFound(
            f"subscription {subscription} of {topic} has no dead letter at offset "
            f"{offset}"
        )
    return described(letter)


def _add_command(
    name: str, doing: str, done: str, question: str, help_text: str, *lines: str
) -> None:
    """Add the command that calls the method *name* of ``DeadLetters``."""

    def handle(
        connect: Connect,
        topic: parameters.Topic,
        *,
        subscription: Subscription,
        reason: str | None = None,
        offset: list[int] | None = None,
        limit: Annotated[int | None, typer.Option(min=1)] = None,
        dry_run: bool = False,
        yes: parameters.Yes = False,
        dead_letter_topic: DeadLetterTopic = None,
        output_format: FormatOption = OutputFormat.TABLE,
    ) -> Result:
        """
        Args:
            reason (TEXT): Only dead letters whose reason contains this text.
            offset (OFFSET): Only the dead letter at this offset of the dead-letter
                topic; may be repeated.
            limit (-n COUNT): At most this number of dead letters, oldest first.
            dry_run: Only show what would be done.
        """
        if not dry_run:
            confirm(
                question.format(topic=topic, subscription=subscription), is_sure=yes
            )
        with _selected(
            connect,
            topic,
            subscription,
            dead_letter_topic=dead_letter_topic,
            reason=reason,
            offsets=offset,
            limit=limit,
        ) as (dead_letters, selected):
            if dry_run:
                rows = _rows(selected, output_format)
                print_note(f"{_count_text(len(rows))} would be {done}.")
                return Result(rows, Table(COLUMNS, rows))
            count = 0
            with progress_line(doing, is_shown=sys.stderr.isatty()) as report:
                while True:
                    portion = [*islice(selected, CHUNK_MESSAGES_MAX)]
                    count += getattr(dead_letters, name)(portion)
                    report(f"{doing}: {_count_text(count)}", count)
                    if len(portion) < CHUNK_MESSAGES_MAX:
                        break
        return Result({done: count}, f"{_count_text(count)} {done}.")

    handle.__doc__ = f"{cleandoc(help_text)}\n\n{cleandoc(handle.__doc__ or '')}"
    command(app, *lines, name=name)(handle)


_add_command(
    "replay",
    "replaying",
    "replayed",
    "Publish dead letters again to {topic}?",
    """
    Publish dead letters again to the topic where they failed.

    Each keeps its key, payload and attributes, including those that describe its
    failures, and is no longer listed. All subscriptions of the topic receive it, so
    other subscriptions may receive the message twice.
    """,
    "danube dead-letters replay /default/orders -s billing --dry-run",
    "danube dead-letters replay /default/orders -s billing --offset 17 --yes",
)

_add_command(
    "drop",
    "dropping",
    "dropped",
    "Drop dead letters of {subscription} of {topic}?",
    """
    Mark dead letters as handled without replaying them.

    They are no longer listed. Their messages stay in the dead-letter topic until its
    retention removes them.
    """,
    "danube dead-letters drop /default/orders -s billing --reason 'no such user'",
)


def described(letter: DeadLetter) -> Result:
    """Return the description of one dead letter."""
    payload = letter.message.payload.decode(errors="backslashreplace")
    return Result(
        json_of(letter),
        Fields(
            [
                *zip(FIELDS, cells_of(letter, FIELDS), strict=True),
                *(
                    (f"Before that, {index}.", _failure_text(failure))
                    for index, failure in enumerate(reversed(letter.history), 1)
                ),
                *sorted(letter.message.attributes.items()),
            ]
        ),
        "",
        printable(payload),
    )


def json_of(letter: DeadLetter) -> dict[str, Any]:
    """Return the fields of *letter* for JSON."""
    return {
        "offset": letter.id.offset,
        "original_topic": letter.topic,
        "original_offset": letter.offset,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "history": letter.history,
        "message": fields_of(letter.message),
    }


def _rows(selected: Iterator[DeadLetter], output_format: OutputFormat) -> list[Any]:
    # The dead letters themselves would keep whole batches in memory.
    if output_format is OutputFormat.JSON:
        return [json_of(letter) for letter in selected]
    return [[*cells_of(letter, COLUMNS)] for letter in selected]


def _count_text(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def _origin(letter: DeadLetter) -> str:
    return f"{letter.topic} {'' if letter.offset is None else letter.offset}".strip()


def _failure_text(failure: dict[str, Any]) -> str:
    where = f"{failure.get('topic', '')} {failure.get('offset', '')}"
    return f"{where}, deliveries: {failure.get('attempt', '')}, {failure.get('reason')}"


def _preview(letter: DeadLetter) -> str:
    payload = letter.message.payload[: 4 * SHOWN_CHARACTERS]
    text = printable(payload.decode(errors="backslashreplace"))
    return excerpt(text, SHOWN_CHARACTERS)


COLUMNS: Columns = {
    "Offset": lambda letter: str(letter.id.offset),
    "Was": _origin,
    "Deliveries": "attempt",
    "Published": lambda letter: format_time(letter.message.publish_time),
    "Key": "message.key",
    "Payload": _preview,
    "Reason": "reason",
}

FIELDS: Columns = {
    "Offset": COLUMNS["Offset"],
    "Was": _origin,
    "Published": COLUMNS["Published"],
    "Producer": "message.producer",
    "Key": "message.key",
    "Deliveries": "attempt",
    "Reason": "reason",
}
