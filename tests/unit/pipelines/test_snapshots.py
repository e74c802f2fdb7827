"""Which files of a checkpoint make a whole, whatever Spark writes meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.pipelines.snapshots import Order, commits_of, order_of, select

PATHS = [
    "starts.json",
    "q/metadata",
    "q/offsets/0",
    "q/offsets/1",
    "q/offsets/2",
    "q/offsets/3",
    "q/offsets/.3.crc",
    "q/commits/0",
    "q/commits/1",
    "q/commits/2",
    "q/commits/.2.abc.tmp",
    "q/sources/0/0",
    "q/state/0/1/2.delta",
    "q/state/0/1/.3.delta.tmp",
    "r/metadata",
    "r/offsets/0",
]


def test_the_newest_commit_of_each_query():
    assert commits_of(PATHS) == {"q": 2, "r": -1}


def test_a_whole_is_what_belongs_to_its_commits_and_one_batch_more():
    assert select(PATHS, {"q": 1, "r": -1}) == [
        "q/commits/0",
        "q/commits/1",
        "q/metadata",
        "q/offsets/0",
        "q/offsets/1",
        "q/offsets/2",
        "q/sources/0/0",
        "q/state/0/1/2.delta",
        "r/metadata",
        "r/offsets/0",
        "starts.json",
    ]


@given(st.integers(0, 20), st.integers(0, 2), st.integers(0, 5))
def test_every_commit_of_a_whole_has_its_offsets(done, planned, more):
    """*more* micro-batches are done between looking at commits and copying."""
    offsets = [f"q/offsets/{n}" for n in range(done + planned + more)]
    commits = [f"q/commits/{n}" for n in range(done)]
    seen = commits_of([*offsets, *commits])
    later = [f"q/commits/{n}" for n in range(done, done + more)]
    found = select([*offsets, *commits, *later], seen)
    committed = {each.rpartition("/")[2] for each in found if "commits" in each}
    known = {each.rpartition("/")[2] for each in found if "offsets" in each}
    assert committed == {str(n) for n in range(done)}
    assert committed <= known
    assert len(known - committed) <= 1


IDS = {"q": "1", "r": "2"}


@pytest.mark.parametrize(
    ("mine", "other", "order"),
    [
        ((IDS, {"q": 1, "r": 1}), (IDS, {"q": 1, "r": 1}), Order.SAME),
        ((IDS, {"q": 2, "r": 1}), (IDS, {"q": 1, "r": 1}), Order.NEWER),
        ((IDS, {"q": 0, "r": 1}), (IDS, {"q": 1, "r": 1}), Order.OLDER),
        ((IDS, {"q": 0, "r": 2}), (IDS, {"q": 1, "r": 1}), Order.UNRELATED),
        ((IDS, {"q": 1}), ({"q": "9"}, {"q": 1}), Order.UNRELATED),
        ((IDS, {"q": 1, "r": 0}), ({"q": "1"}, {"q": 1}), Order.NEWER),
        (({}, {}), (IDS, {"q": 1}), Order.OLDER),
        (({}, {}), ({}, {}), Order.SAME),
    ],
)
def test_one_is_newer_than_the_other(mine, other, order):
    assert order_of(mine, other) is order
