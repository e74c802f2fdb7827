"""Tests of the checks of received messages."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.checking import OrderCheck, UnionCheck
from bench.payloads import headers_of, make_ring, pieces


def check_order(places, *, ring=10, sent=None, cuts=()):
    """The verdict about one stream, of which these places came."""
    messages = make_ring(ring, 16)
    check = OrderCheck(1, ring, len(places) if sent is None else sent)
    for part in _parts(places, cuts):
        check.add(headers_of([messages[place] for place in part]))
    return check.find_problems()


def check_union(places, *, ring, sent, cuts=()):
    messages = make_ring(max(ring, max(places, default=0) + 1), 16)
    check = UnionCheck(ring, sent)
    for part in _parts(places, cuts):
        check.add(headers_of([messages[place] for place in part]))
    return check.find_problems()


def _parts(places, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut < len(places)), len(places)]
    return [places[base:end] for base, end in pairwise(edges) if end > base]


def test_ordered_messages_pass():
    assert check_order([0, 1, 2, 3, 4, 5], cuts=(2, 3)) == []


def test_ring_may_wrap_around():
    assert check_order([0, 1, 2, 0, 1, 2, 0], ring=3, cuts=(2,)) == []


def test_lost_message_is_located():
    assert check_order([0, 1, 3, 4], sent=5) == [
        "4 of 5 messages came",
        "stream 0: place 3 came, not 2: 1 lost or late",
    ]


def test_message_lost_at_the_end_is_found():
    assert check_order([0, 1, 2], sent=5) == ["3 of 5 messages came"]


def test_repeated_message_is_found():
    assert check_order([0, 1, 1, 2], sent=3) == [
        "4 of 3 messages came",
        "stream 0: place 1 came, not 2: repeated or late",
    ]


def test_swapped_messages_are_found():
    [first, *_] = check_order([0, 2, 1, 3], sent=4)

    assert first == "stream 0: place 2 came, not 1: 1 lost or late"


def test_many_problems_are_only_counted():
    verdict = check_order([5, 3, 1, 9, 7, 5], sent=6)

    assert len(verdict) == 4
    assert verdict[-1].startswith("and ")


def test_each_stream_has_its_own_order():
    one, two = make_ring(3, 16, stream=0), make_ring(3, 16, stream=1)
    check = OrderCheck(2, 3, 3)

    check.add(headers_of([two[0], one[0], two[1], one[1]]))
    check.add(headers_of([one[2], two[2]]))

    assert check.find_problems() == []


def test_loss_in_one_stream_is_found():
    one, two = make_ring(3, 16, stream=0), make_ring(3, 16, stream=1)
    check = OrderCheck(2, 3, 3)

    check.add(headers_of([one[0], one[1], two[0], two[2], one[2]]))

    assert check.find_problems() == [
        "5 of 6 messages came",
        "stream 1: place 2 came, not 1: 1 lost or late",
    ]


def test_message_of_unknown_stream_is_found():
    check = OrderCheck(1, 3, 1)

    check.add(headers_of(make_ring(1, 16, stream=4)))

    assert "unknown stream 4" in " ".join(check.find_problems())


def test_expected_count_may_be_set_later():
    check = OrderCheck(1, 4, 1 << 60)
    check.add(headers_of(make_ring(3, 16)))

    check.expect(3)

    assert check.find_problems() == []


def test_shared_consumers_may_receive_in_any_order():
    assert check_union([3, 0, 2, 1], ring=4, sent=4, cuts=(1,)) == []


def test_shared_consumers_wrap_around_the_ring():
    assert check_union([2, 0, 1, 0], ring=3, sent=4) == []


def test_losses_and_repetitions_do_not_cancel_out():
    assert check_union([0, 1, 1, 3], ring=4, sent=4) == [
        "1 of 4 messages did not come",
        "1 messages came more than once",
    ]


def test_sequence_beyond_the_ring_is_refused():
    assert check_union([0, 1, 7], ring=2, sent=2) == ["1 messages were never sent"]


@st.composite
def deliveries(draw):
    """A ring, how many of its messages were sent, and how they were cut."""
    ring = draw(st.integers(1, 12))
    sent = draw(st.integers(1, 40))
    cuts = draw(st.lists(st.integers(0, sent), max_size=4))
    return ring, sent, cuts


@given(deliveries())
def test_ordered_delivery_passes_both_checks(delivery):
    ring, sent, cuts = delivery
    places = headers_of(pieces(make_ring(ring, 16), 0, sent))["place"].tolist()

    assert check_order(places, ring=ring, cuts=cuts) == []
    assert check_union(places, ring=ring, sent=sent, cuts=cuts) == []


@given(deliveries(), st.data())
def test_both_checks_find_losses_and_repetitions(delivery, data):
    ring, sent, cuts = delivery
    places = headers_of(pieces(make_ring(ring, 16), 0, sent))["place"].tolist()
    at = data.draw(st.integers(0, sent - 1))
    lost, repeated = places[:at] + places[at + 1 :], places[: at + 1] + places[at:]
    wrong = data.draw(st.sampled_from([lost, repeated]))

    assert check_order(wrong, ring=ring, sent=sent, cuts=cuts) != []
    assert check_union(wrong, ring=ring, sent=sent, cuts=cuts) != []


@pytest.mark.parametrize("spread", [1, 50])
def test_shared_check_is_equal_for_dense_and_sparse_batches(spread):
    places = list(range(0, 100 * spread, spread))

    verdict = check_union(places, ring=100 * spread, sent=100 * spread)

    missing = 100 * spread - 100
    assert verdict == (
        [f"{missing:,} of {100 * spread:,} messages did not come"] if missing else []
    )
