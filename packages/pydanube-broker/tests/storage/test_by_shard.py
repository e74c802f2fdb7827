"""Values are found by their shard, whatever was added and removed before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_broker.storage.pure.by_shard import ByShard

SHARDS = [0, 1, 2, None]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "del", "pop"]),
            st.integers(0, 5),
            st.sampled_from(SHARDS),
        )
    )
)
def test_values_of_each_shard_are_those_of_the_dictionary(steps):
    found: ByShard[int, SimpleNamespace] = ByShard()
    expected: dict[int, SimpleNamespace] = {}
    for step, key, shard in steps:
        if step == "set":
            found[key] = expected[key] = SimpleNamespace(shard=shard)
        elif step == "del" and key in expected:
            del found[key]
            del expected[key]
        elif step == "pop":
            assert found.pop(key, None) is expected.pop(key, None)
        assert found == expected
        for each in (0, 1, 2):
            values = [value for value in expected.values() if value.shard == each]
            assert {id(value) for value in found.of_shard(each)} == set(map(id, values))


def test_missing_key_is_an_error():
    found: ByShard[int, SimpleNamespace] = ByShard()
    with pytest.raises(KeyError):
        found.pop(1)
    with pytest.raises(KeyError):
        del found[1]
