"""Names of replicated topics."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube_connect.replication.pure.naming import TopicNaming


def test_topics_match_patterns_with_their_partitions():
    naming = TopicNaming.parse(["/shop/*", "/default/a"], [])
    assert naming.matches("/shop/orders-part-3")
    assert naming.matches("/default/a")
    assert not naming.matches("/default/b")


def test_topics_of_replications_never_match():
    naming = TopicNaming.parse(["/default/*"], [])
    assert not naming.matches("/default/replicate-edge.positions")


def test_the_first_rename_that_fits_applies():
    renames = ["/shop/=/eu-shop/", "/=/x-"]
    naming = TopicNaming.parse(["/*/*"], renames)
    assert naming.target_of("/shop/orders-part-1") == "/eu-shop/orders-part-1"
    assert naming.target_of("/default/a") == "/x-default/a"
    assert TopicNaming.parse(["/a/*"], []).target_of("/a/b") == "/a/b"


@pytest.mark.parametrize("rename", ["", "/a", "a=/b", "/a=b"])
def test_malformed_renames_are_refused(rename):
    with pytest.raises(InvalidRequest, match="write OLD=NEW"):
        TopicNaming.parse(["/a/*"], [rename])


def test_invalid_new_names_are_refused():
    with pytest.raises(InvalidName):
        TopicNaming.parse(["/a/*"], ["/a/=/"]).target_of("/a/b")
