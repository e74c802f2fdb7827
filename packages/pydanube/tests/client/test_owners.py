"""What a client knows of the brokers that serve topics."""

import pytest

from pydanube.client.pure.owners import TopicOwners, owned_topic_of
from pydanube.model.errors import (
    ConnectionLost,
    NotOwner,
    SessionLost,
    TopicNotFound,
)
from pydanube.wire.pb import stream_pb2 as pb

A, B = "danube://a:6651", "danube://b:6651"
TOPIC = "/default/t"


@pytest.fixture
def known():
    known = TopicOwners()
    known.on_location(TOPIC, A)
    return known


@pytest.mark.parametrize("error", [NotOwner, SessionLost, ConnectionLost])
def test_topic_is_looked_up_again_after_an_error_that_may_pass(known, error):
    known.on_error(TOPIC, A, error("on purpose"))
    assert known.find(TOPIC) is None


def test_owner_stays_known_after_a_final_error(known):
    known.on_error(TOPIC, A, TopicNotFound("gone"))
    assert known.find(TOPIC) == A


def test_late_error_of_an_earlier_owner_changes_nothing(known):
    known.on_location(TOPIC, B)
    known.on_error(TOPIC, A, NotOwner("late"))
    assert known.find(TOPIC) == B


def test_topics_of_a_lost_broker_are_looked_up_again(known):
    known.on_location("/default/u", B)
    known.on_broker_lost(A)
    assert (known.find(TOPIC), known.find("/default/u")) == (None, B)


def test_the_oldest_owners_are_forgotten_first():
    known = TopicOwners(topics_max=2)
    known.on_location("/default/u", A)
    known.on_location(TOPIC, B)
    known.on_location("/default/v", A)
    assert known.find("/default/u") is None
    assert (known.find(TOPIC), known.find("/default/v")) == (B, A)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.DescribeTopic(topic=TOPIC), TOPIC),
        (pb.Fetch(topic=TOPIC), TOPIC),
        (pb.CreateTopic(topic=TOPIC), ""),
        (pb.ListPartitions(topic=TOPIC), ""),
        (pb.DeleteTopic(topic=TOPIC), TOPIC),
        (pb.DeleteTopic(topic=TOPIC, force=True), ""),
        (pb.ListTopics(), ""),
        (pb.UploadSegments(), ""),
    ],
)
def test_requests_about_the_content_of_a_topic_go_to_its_owner(request_, expected):
    assert owned_topic_of(request_) == expected
