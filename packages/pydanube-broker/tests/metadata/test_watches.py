"""What a watch reports after it has missed changes."""

from pydanube_broker.metadata.store import Revision, Stored
from pydanube_broker.metadata.watches import difference


def test_the_difference_is_what_a_reader_has_to_change():
    known = {"same": Revision(1), "changed": Revision(2), "deleted": Revision(3)}
    present = {
        "same": Stored(b"1", Revision(1)),
        "changed": Stored(b"2", Revision(5)),
        "new": Stored(b"3", Revision(6)),
    }
    assert difference(known, present) == {
        "changed": present["changed"],
        "new": present["new"],
        "deleted": None,
    }
    assert difference({}, {}) == {}
