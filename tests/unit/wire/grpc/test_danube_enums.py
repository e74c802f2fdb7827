"""Members of our enums have the numbers of the original."""

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import DispatchMode, ProducerAccess, SubscriptionType
from pydanube.wire.grpc.danube_enums import member_of, number_of
from pydanube.wire.pb import danube_api_pb2 as pb


@pytest.mark.parametrize(
    ("danube_enum", "members"),
    [
        (
            pb.ConsumerRequest.SubscriptionType,
            [
                SubscriptionType.EXCLUSIVE,
                SubscriptionType.SHARED,
                SubscriptionType.FAILOVER,
                SubscriptionType.KEY_SHARED,
            ],
        ),
        (pb.DispatchStrategy, [DispatchMode.NON_RELIABLE, DispatchMode.RELIABLE]),
        (pb.ProducerAccessMode, [ProducerAccess.SHARED, ProducerAccess.EXCLUSIVE]),
    ],
)
def test_numbers_map_to_members(danube_enum, members):
    enum = type(members[0])
    numbers = range(len(members))
    assert [member_of(enum, danube_enum, each, "") for each in numbers] == members
    assert [number_of(each, danube_enum) for each in members] == list(numbers)
    with pytest.raises(InvalidRequest, match="Unknown number: 99"):
        member_of(enum, danube_enum, 99, "Unknown number:")
