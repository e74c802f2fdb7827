"""What a user hands in is what travels, or an error at once."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.envelope import (
    Terms,
    batches_of,
    cut,
    has_terms,
    is_delayed,
    terms_of,
)
from pydanube.model.batch import batch_of
from pydanube.wire.batches import BATCH_MESSAGES_MAX

NOW = 1_700_000_000_000_000


def test_a_delay_and_a_time_to_live_count_from_now():
    assert terms_of(NOW, deliver_after_s=1.5, ttl_s=60) == Terms(
        NOW + 1_500_000, NOW + 60_000_000
    )


def test_a_message_may_be_due_at_a_moment():
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    expected = Terms(1_893_456_000_000_000, None)
    assert terms_of(NOW, deliver_at=moment) == expected
    assert terms_of(NOW, deliver_at=moment.timestamp()) == expected


def test_without_terms_there_are_none():
    assert terms_of(NOW) is None
    assert terms_of(NOW, deliver_after_s=None, deliver_at=None, ttl_s=None) is None


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
def test_terms_that_mean_nothing_are_refused(after_s, at, ttl_s):
    with pytest.raises(pydanube.InvalidRequest):
        terms_of(NOW, deliver_after_s=after_s, deliver_at=at, ttl_s=ttl_s)


def test_terms_hold_for_every_message_of_a_batch():
    [batch] = batches_of([b"a", "b"], Terms(NOW, NOW + 1))
    assert batch.schema.names == ["payload", "deliver_at", "expires_at"]
    assert batch.column("deliver_at").cast(pa.int64()).to_pylist() == [NOW, NOW]
    assert batch.column("expires_at").cast(pa.int64()).to_pylist() == [NOW + 1] * 2


def test_a_batch_may_have_one_term_of_its_own_and_get_the_other():
    table = pa.table({"payload": [b"a"], "expires_at": pa.array([NOW + 9])})
    with_times = table.set_column(
        1, "expires_at", table["expires_at"].cast(pa.timestamp("us", tz="UTC"))
    )
    [batch] = batches_of(with_times, Terms(NOW, None))
    assert batch.schema.names == ["payload", "deliver_at", "expires_at"]
    with pytest.raises(pydanube.InvalidRequest, match="of its own"):
        batches_of(with_times, Terms(None, NOW))


def test_a_batch_without_terms_says_so():
    [plain] = batches_of([b"a"], None)
    [expiring] = batches_of([b"a"], Terms(None, NOW))
    [delayed] = batches_of([b"a"], Terms(NOW, None))
    assert [has_terms(b) for b in (plain, expiring, delayed)] == [False, True, True]
    assert [is_delayed(b) for b in (plain, expiring, delayed)] == [False, False, True]


def test_nothing_is_no_batch():
    assert batches_of([], None) == []


def test_a_piece_has_no_more_messages_than_a_batch_may_have():
    rows = batch_of([b""] * (2 * BATCH_MESSAGES_MAX + 1))
    pieces = cut(rows, 64 << 20)
    assert sum(piece.num_rows for piece in pieces) == rows.num_rows
    assert max(piece.num_rows for piece in pieces) <= BATCH_MESSAGES_MAX
