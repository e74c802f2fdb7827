"""What the original's tools are told when a topic cannot be changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Draining,
    JournalFailed,
    NamespaceNotFound,
)
from pydanube.servers.grpc.admin import TopicAdmin
from pydanube.servers.grpc.services import StatusError
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.pb import danube_admin_pb2 as pb


class Refusing:
    """A broker whose topics cannot be created, for one reason."""

    def __init__(self, reason: BrokerError) -> None:
        self._reason = reason
        self.topics = self

    async def add(self, *_: object) -> None:
        raise self._reason


def create(reason: BrokerError) -> None:
    broker: Any = Refusing(reason)
    request = pb.NewTopicRequest(name="/default/orders")
    asyncio.run(TopicAdmin(broker, "7").create_topic(request))


@pytest.mark.parametrize("reason", [AlreadyExists("is there"), NamespaceNotFound("x")])
def test_final_errors_are_not_found_with_the_reason(reason):
    with pytest.raises(StatusError) as caught:
        create(reason)
    assert caught.value.status is StatusCode.NOT_FOUND
    assert str(caught.value) == (
        f"Unable to create the topic /default/orders due to {reason}"
    )


@pytest.mark.parametrize("reason", [Draining("stopping"), JournalFailed("disk")])
def test_temporary_errors_are_not_not_found(reason):
    with pytest.raises(type(reason)):
        create(reason)
