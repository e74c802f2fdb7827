"""Conversion and checks of what users publish."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.pure.batching import (
    batches_of,
    cut,
    delivery_window,
    parse_delivery,
)
from pydanube.client.pure.outgoing import DeliveryWindow
from pydanube.model.batch import Column
from pydanube.wire.batches import BATCH_MESSAGES_MAX

NOW = 1_700_000_000_000_000


def test_delay_and_time_to_live_are_relative_to_now():
    assert delivery_window(NOW, deliver_after_s=1.5, ttl_s=60) == DeliveryWindow(
        NOW + 1_500_000, NOW + 60_000_000
    )


def test_deliver_at_is_an_absolute_time():
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    expected = DeliveryWindow(1_893_456_000_000_000, None)
    assert delivery_window(NOW, deliver_at=moment) == expected
    assert delivery_window(NOW, deliver_at=moment.timestamp()) == expected


def test_no_options_give_no_delivery_window():
    assert delivery_window(NOW) is None
    assert (
        delivery_window(NOW, deliver_after_s=None, deliver_at=None, ttl_s=None) is None
    )


@pytest.mark.parametrize(
    ("after_s", "at", "ttl_s"),
    [
        (1, NOW / 1e6, None),
        (-1, None, None),
        (float("nan"), None, None),
        (1e300, None, None),
        (None, datetime(2030, 1, 1), None),  # noqa: DTZ001  # That is it.
        (None, "tomorrow", None),
        (None, None, 0),
        (None, None, -1),
        (None, None, float("nan")),
        (10, None, 10),
    ],
)
def test_invalid_delivery_options_are_refused(after_s, at, ttl_s):
    with pytest.raises(pydanube.InvalidRequest):
        delivery_window(NOW, deliver_after_s=after_s, deliver_at=at, ttl_s=ttl_s)


def test_delivery_window_applies_to_every_message_of_a_batch():
    [batch] = batches_of([b"a", "b"], DeliveryWindow(NOW, NOW + 1))
    assert batch.count == 2
    assert batch.columns == Column.PAYLOAD | Column.DELIVER_AT | Column.EXPIRES_AT


def test_arrow_data_has_its_keys_in_a_column():
    table = pa.table({"payload": [b"a"], "key": ["k"]})
    [batch] = batches_of(table, None)
    assert batch.columns == Column.PAYLOAD | Column.KEY
    with pytest.raises(pydanube.InvalidRequest, match="are its columns key and"):
        batches_of(table, None, keys=["k"])


def test_empty_messages_make_no_batch():
    assert batches_of([], None) == []


def test_pieces_have_at_most_the_messages_of_a_batch():
    [batch] = batches_of([b""] * (2 * BATCH_MESSAGES_MAX + 1), None)
    pieces = cut(batch, 64 << 20)
    assert sum(piece.count for piece in pieces) == batch.count
    assert max(piece.count for piece in pieces) <= BATCH_MESSAGES_MAX


@pytest.mark.parametrize("messages", ["abc", b"abc", bytearray(b"abc")])
def test_one_payload_is_not_a_batch_of_its_characters(messages):
    with pytest.raises(pydanube.InvalidRequest, match=r"abc.* is one: pass a list"):
        batches_of(messages, None)


@pytest.mark.parametrize("messages", [{"payload": b"x"}, 5, None])
def test_a_batch_that_is_no_list_is_refused(messages):
    with pytest.raises(pydanube.InvalidRequest, match="a list of payloads or Arrow"):
        batches_of(messages, None)


def test_a_generator_of_payloads_is_a_batch():
    [batch] = batches_of((payload for payload in (b"a", b"b")), None)
    assert batch.count == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl_s": "7d"}, "ttl_s must be a number of seconds or None, not '7d' (str)"),
        (
            {"headers": {}},
            (
                "headers is not an option of a message: the options are "
                "deliver_after_s, deliver_at, ttl_s, key, attributes, id; "
                "attributes={…} holds names and values of your own"
            ),
        ),
    ],
)
def test_a_wrong_delivery_option_is_named(options, message):
    with pytest.raises(pydanube.InvalidRequest) as raised:
        parse_delivery(NOW, options)
    assert str(raised.value) == message
