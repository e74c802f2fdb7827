"""Which queries are forgotten, and who owns those that are left."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import VersionBehind
from pydanube.model.staging import REPEATED_VERSIONS_MAX, is_repeat
from pydanube_broker.broker.staging.query_owners import claimed, old_queries
from pydanube_broker.metadata.records import QueryRecord, StagingDecision
from pydanube_broker.metadata.store import Revision, Stored

PENDING = StagingDecision(version=1, commit_id=1, parts=(), topics=())


def test_first_principal_stays_the_owner():
    first = claimed(QueryRecord(version=3), "user:a", 7)
    assert (first.owner, first.committed_at, first.version) == ("user:a", 7, 3)
    assert claimed(first, "user:b", 9) is first


@given(
    st.dictionaries(
        st.integers(0, 99).map(str),
        st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.booleans()),
        max_size=30,
    ),
    st.integers(0, 30),
)
def test_nobody_loses_a_query_while_another_principal_has_more(queries, count_max):
    records = {
        name: Stored(
            QueryRecord(
                owner=owner, committed_at=at, decision=PENDING if pending else None
            ),
            Revision(1),
        )
        for name, (owner, at, pending) in queries.items()
    }
    forgotten = old_queries(records, 20, 1e9, count_max)
    assert len(set(forgotten)) == len(forgotten)
    idle = [name for name, each in records.items() if each.value.decision is None]
    assert len(forgotten) == min(len(idle), max(0, len(records) - count_max))
    left = Counter(
        owner for name, (owner, *_) in queries.items() if name not in forgotten
    )
    evictable = {
        records[name].value.owner for name in idle if name not in set(forgotten)
    }
    for name in forgotten:
        owner = records[name].value.owner
        assert all(left[owner] + 1 >= left[other] for other in evictable)
        older = [
            each
            for each in idle
            if each not in forgotten
            and records[each].value.owner == owner
            and records[each].value.committed_at < records[name].value.committed_at
        ]
        assert older == []


def test_idle_queries_are_forgotten_whoever_owns_them():
    records = {
        "old": Stored(QueryRecord(owner="a", committed_at=1), Revision(1)),
        "new": Stored(QueryRecord(owner="a", committed_at=9_000_000), Revision(1)),
    }
    assert old_queries(records, 10_000_000, 5, 10) == ["old"]


def test_version_far_below_the_committed_one_is_no_repeat():
    assert not is_repeat("q", 0, None)
    assert not is_repeat("q", 6, 5)
    assert is_repeat("q", 5, 5)
    assert is_repeat("q", 0, REPEATED_VERSIONS_MAX)
    with pytest.raises(VersionBehind, match="another writer uses the name"):
        is_repeat("q", 0, REPEATED_VERSIONS_MAX + 1)
