"""The table of frame kinds and operations."""

from __future__ import annotations

import pytest

from pydanube.wire.native.kinds import (
    KIND_OF,
    OPERATIONS,
    Kind,
    Permission,
    Side,
    is_repeatable,
)
from pydanube.wire.pb import stream_pb2 as pb


@pytest.mark.parametrize("kind", sorted(OPERATIONS))
def test_operation_is_a_request_of_the_client_with_an_answer_of_the_broker(kind):
    assert kind.sender is Side.CLIENT
    assert kind.answer.sender is Side.BROKER


def test_kind_is_found_by_number_and_by_message():
    assert Kind(int(Kind.SKIP)) is Kind.SKIP
    assert KIND_OF[pb.Skip] is Kind.SKIP


def test_operation_declares_its_permission():
    assert Kind.SET_NAMESPACE_POLICY.permission is Permission.ADMIN
    assert Kind.PUBLISH.permission is None


def test_create_is_repeatable_if_the_topic_may_exist():
    assert is_repeatable(pb.ListTopics())
    assert not is_repeatable(pb.Skip(count=1))
    assert not is_repeatable(pb.CreateTopic(topic="/default/a"))
    assert is_repeatable(pb.CreateTopic(topic="/default/a", exist_ok=True))
