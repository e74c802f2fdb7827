"""Members of a connection are named on one line."""

from pydanube.model.connections import ConnectionDescription, ConnectionMember
from pydanube_cli.commands.connections import COLUMNS

ONE = ConnectionDescription(
    broker_id="b",
    connection_id=1_700_000_000_000_000,
    listener="kafka",
    address="10.0.0.1:4711",
    client="billing",
    principal="ada",
    members=(
        ConnectionMember(topic="/a/b", name="p"),
        ConnectionMember(topic="/a/c", name="c", subscription="s"),
    ),
    member_count=3,
)


def test_members_are_named_and_the_others_counted():
    shown = COLUMNS["Producers and subscriptions"](ONE)
    assert shown == "producer of /a/b, s of /a/c, 1 more"


def test_bytes_that_are_not_counted_are_left_out():
    assert COLUMNS["Received"](ONE) is None
    assert COLUMNS["Since"](ONE) == "2023-11-14T22:13:20Z"
