"""The selection and the output of dead letters."""

import pytest

from pydanube.cli.commands import dead_letters as cli
from pydanube.cli.commands.dead_letters import DeadLetterFilter
from pydanube.cli.output import Table, show
from pydanube.client.dead_letters import DeadLetter
from pydanube.client.messages import MessageBatch, ReceivedBatch
from pydanube.model.ids import Epoch, Offset
from support.batches import frame_of


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


@pytest.mark.parametrize(
    ("choice", "is_meant"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(reason="parse"), True),
        (DeadLetterFilter(reason="user"), False),
        (DeadLetterFilter(offsets=frozenset([3, 4])), True),
        (DeadLetterFilter(offsets=frozenset()), False),
        (DeadLetterFilter(reason="parse", offsets=frozenset([1])), False),
    ],
)
def test_dead_letters_are_selected_by_reason_and_offset(choice, is_meant):
    assert choice.matches(letter()) is is_meant


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
