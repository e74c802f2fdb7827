"""Records of clusters round-trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import Corrupt
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    LoadRecord,
    SessionJournalRecord,
    SessionRecord,
    ShardLoad,
    ShardRecord,
    ShardState,
)

SESSION = st.none() | st.text("0123456789abcdef", min_size=32, max_size=32)


@given(
    st.builds(
        ShardRecord,
        state=st.sampled_from(ShardState),
        epoch=st.integers(0, 2**53),
        owner=SESSION,
        source=SESSION,
        source_epoch=st.integers(0, 2**53),
        has_left=st.booleans(),
        target=SESSION,
    )
)
def test_shard_record_round_trips(record: ShardRecord) -> None:
    key = keys.SHARDS.key(1)
    assert key.decode(key.encode(record)) == record


def test_other_records_round_trip() -> None:
    session = SessionRecord(
        broker_id="b1",
        addresses={"native": "host:6651"},
        started_at=1,
        zone="z",
    )
    mode = BrokerModeRecord(mode=BrokerMode.DRAINING, changed_at=1, reason="upgrade")
    journal = SessionJournalRecord(
        kind="object", prefix=".journal/5f/", first=1, broker_id="b1"
    )
    load = LoadRecord(measured_at=1, shards={17: ShardLoad(bytes_per_s=1.5)})
    for key, record in [
        (keys.SESSIONS.key("5f"), session),
        (keys.BROKER_MODES.key("b1"), mode),
        (keys.SESSION_JOURNALS.key("5f"), journal),
        (keys.LOADS.key("5f"), load),
    ]:
        assert key.decode(key.encode(record)) == record


def test_record_of_a_new_shard_has_no_owner_and_no_source() -> None:
    assert keys.SHARDS.key(1).decode(b"{}") == ShardRecord(
        state=ShardState.RELEASED, epoch=0, owner=None, source=None
    )


def test_unknown_state_is_refused() -> None:
    with pytest.raises(Corrupt, match="ShardRecord"):
        keys.SHARDS.key(1).decode(b'{"state":"lost"}')
