"""A copy of all values that is folded from a log of changes."""

from pydanube_broker.metadata.store import Revision, Stored
from pydanube_zookeeper.pure.nodes import Nodes, Write
from pydanube_zookeeper.replica import NodeChange, Position, Replica

START = Position(number=4, first=2, version=4, revision=Revision(40))
NODES = Nodes("c")


def write(value, session_id=None):
    return Write(value=value, session_id=session_id)


def replica_of(*changes):
    replica = Replica(START)
    for number, each in enumerate(changes, 5):
        replica.apply(each, replica.position.next(Revision(10 * number), 2))
    return replica


def test_changes_are_applied_in_order():
    replica = replica_of({"/a": write(b"1"), "/b": write(b"1")}, {"/a": write(b"2")})
    assert replica.values == {
        "/a": Stored(b"2", Revision(60)),
        "/b": Stored(b"1", Revision(50)),
    }
    assert replica.position == Position(
        number=6, first=2, version=6, revision=Revision(60)
    )
    changed = replica.apply(
        {"/a": None, "/c": write(b"3")}, replica.position.next(Revision(70), 3)
    )
    assert changed == {"/a": None, "/c": Stored(b"3", Revision(70))}
    assert replica.get("/a") is None
    assert replica.position.first == 3


def test_changes_heal_a_copy_that_was_read_while_they_were_made():
    in_order = replica_of(
        {"/a": write(b"1"), "/b": write(b"1", "s")},
        {"/a": None, "/b": write(b"2")},
        {"/c": write(b"3", "s")},
    )
    # Nodes of each state, as a reader may find them.
    mixed = Replica(
        START,
        {"/a": Stored(b"1", Revision(50)), "/c": Stored(b"3", Revision(70))},
        {"/c": "s"},
    )
    for number, changes in enumerate(
        (
            {"/a": write(b"1"), "/b": write(b"1", "s")},
            {"/a": None, "/b": write(b"2")},
            {"/c": write(b"3", "s")},
        ),
        5,
    ):
        mixed.apply(changes, mixed.position.next(Revision(10 * number), 2))
    assert mixed.values == in_order.values
    assert mixed.holders == in_order.holders == {"/c": "s"}
    assert mixed.scan("/") == in_order.scan("/")


def test_a_scan_is_in_order_and_within_its_bounds():
    names = ["/t/b", "/t/a", "/t", "/tt/a", "/t/é", "/s/z"]
    replica = replica_of({name: write(b"") for name in names})
    assert [path for path, _ in replica.scan("/t/")] == ["/t/a", "/t/b", "/t/é"]
    assert [path for path, _ in replica.scan("/t/", "/t/a", 1)] == ["/t/b"]
    assert replica.scan("/t/", "/t/é") == []
    assert replica.scan("/t/", limit=0) == []


def test_the_last_put_decides_the_session_of_a_path():
    replica = replica_of(
        {"/a": write(b"1", "s"), "/b": write(b"1", "s"), "/c": write(b"1", "s")},
        {"/a": write(b"2"), "/b": write(b"2", "t"), "/c": None},
        {"/c": write(b"3")},
    )
    assert replica.holders == {"/b": "t"}
    assert replica.paths_of("s") == []
    assert replica.paths_of("t") == ["/b"]


def test_deleting_an_absent_path_is_no_change():
    replica = replica_of({"/a": write(b"1")})
    assert replica.effective({"/a": None, "/b": None}) == {"/a": None}


def test_a_node_is_created_changed_or_replaced():
    replica = replica_of({"/old": write(b"1"), "/held": write(b"1", "s")})
    changes = {
        "/new": write(b"2"),
        "/old": write(b"2"),
        "/held": write(b"2", "t"),
    }
    assert replica.node_changes(NODES, {"/old": None}) == [
        NodeChange("/danube/c/values/%2Fold", None)
    ]
    assert replica.node_changes(NODES, changes) == [
        NodeChange("/danube/c/values/%2Fnew", b"2", is_new=True),
        NodeChange("/danube/c/values/%2Fold", b"2"),
        NodeChange("/danube/c/values/%2Fheld:s", None),
        NodeChange("/danube/c/values/%2Fheld:t", b"2", is_new=True),
    ]


def test_versions_go_on_after_the_largest_number():
    last = Position(number=1, first=1, version=2**31 - 1, revision=Revision(1))
    assert last.next(Revision(2), 1).version == -(2**31)
