"""Topics have UUIDs that differ."""

from __future__ import annotations

from uuid import UUID

from pydanube_kafka.pure.topic_ids import uuid_of


def test_topics_have_uuids_that_differ_and_are_none_that_kafka_reserves():
    found = [uuid_of(each) for each in (0, 1, 2**63 - 1)]
    assert len(set(found)) == 3
    assert not {UUID(int=0), UUID(int=1)} & set(found)
