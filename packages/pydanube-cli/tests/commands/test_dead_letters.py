"""The selection and the output of dead letters."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pydanube.client.consumers.dead_letters import DeadLetter
from pydanube.client.messages.messages import MessageBatch, ReceivedBatch
from pydanube.model.ids import Epoch, Offset
from pydanube_cli.commands import dead_letters as cli
from pydanube_cli.presentation.output import Table, show
from support.fakes.batches import frame_of


def letter(offset=3, reason="cannot parse", payload=b"no number", history=()):
    frame = frame_of([payload], attributes=[{"a": "b"}], keys=[b"k"])
    frame.stamp(Offset(offset), Epoch(1))
    batch = MessageBatch(
        "/default/dead", [(ReceivedBatch(frame, "/default/dead", 1), 0, 1)]
    )
    return DeadLetter(
        message=batch[0],
        topic="/default/t",
        offset=7,
        attempt=6,
        reason=reason,
        history=history,
    )


def selected(letters, **choice):
    dead_letters = SimpleNamespace(messages=lambda: (each for each in letters))
    client = SimpleNamespace(dead_letters=lambda *_, **__: dead_letters)
    with cli._selected(
        *(lambda: nullcontext(client), "/default/t", "s"),
        dead_letter_topic=None,
        **choice,
    ) as (_, found):
        return [*found]


@pytest.mark.parametrize(
    ("choice", "is_meant"),
    [
        ({}, True),
        ({"reason": "parse"}, True),
        ({"reason": "user"}, False),
        ({"offsets": [3, 4]}, True),
        ({"offsets": []}, False),
        ({"reason": "parse", "offsets": [1]}, False),
    ],
)
def test_dead_letters_are_selected_by_reason_and_offset(choice, is_meant):
    one = letter()
    assert selected([one], **choice) == ([one] if is_meant else [])


def test_oldest_dead_letters_are_selected_up_to_the_limit():
    letters = [letter(offset) for offset in range(5)]
    assert selected(letters, offsets=[1, 2, 3], limit=2) == letters[1:3]


def test_list_has_a_row_per_dead_letter_with_a_shortened_payload(capsys):
    long = letter(payload=b"x" * 1000, reason="too\nlong")
    show(Table.of([long], cli.COLUMNS))
    said = capsys.readouterr().out
    assert "x" * 39 + "\u2026" in said
    assert "x" * 41 not in said
    assert "too\\nlong" in said


def test_dead_letter_as_json_has_all_fields():
    history = ({"reason": "first", "offset": "1"},)
    said = cli.json_of(letter(history=history))
    assert (said["offset"], said["original_offset"], said["attempt"]) == (3, 7, 6)
    assert said["history"] == history
    assert said["message"]["payload"] == "no number"
    assert said["message"]["attributes"] == {"a": "b"}


def test_dead_letter_shows_every_failure(capsys):
    history = (
        {"topic": "/default/t", "offset": "1", "attempt": "6", "reason": "first"},
        {"topic": "/default/t", "offset": "4", "attempt": "2", "reason": "second"},
    )
    show(*cli.described(letter(history=history)).parts)
    said = capsys.readouterr().out
    assert said.index("cannot parse") < said.index("second") < said.index("first")
    assert said.rstrip().endswith("no number")


def test_dead_letter_with_an_invalid_history_is_shown(capsys):
    show(*cli.described(letter(history=({},))).parts)
    assert "None" in capsys.readouterr().out
