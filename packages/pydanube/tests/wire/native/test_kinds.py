"""The table of frame kinds and operations."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from pydanube.security.permissions import Permission
from pydanube.wire.native.kinds import (
    KIND_OF,
    OPERATIONS,
    Kind,
    On,
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


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in OPERATIONS])
def test_operation_declares_its_permission_and_resource(kind):
    assert isinstance(kind.permission, Permission)
    assert isinstance(kind.on, On)
    named = {On.TOPIC: "topic", On.NAMESPACE: "namespace", On.SUBJECT: "subject"}
    if kind.on in named:
        assert named[kind.on] in kind.body.DESCRIPTOR.fields_by_name
    if kind.on is On.STAGING:
        assert "query" in kind.body.DESCRIPTOR.fields_by_name


def fields_of(descriptor, seen=()):
    """All fields of a message and of the messages in it."""
    for field in descriptor.fields:
        yield field
        inner = field.message_type
        if inner is not None and inner not in seen:
            yield from fields_of(inner, (*seen, inner))


NAMES_SOMETHING = re.compile(
    r"(.*_)?(topics?|namespace|subject|schema_id|query|store|source|reply_to)"
)
COVERED = {
    On.TOPIC: {"topic"},
    On.NAMESPACE: {"namespace"},
    On.SUBJECT: {"subject", "schema_id"},
    On.STAGING: {"query"},
    # These permissions include all topics and namespaces, or each one in the answer.
    On.CLUSTER: {"topic", "namespace", "query"},
    On.LISTED: {"topics", "namespace"},
}


def named_by(kind):
    """Return the paths of the fields of a request that name something."""

    def walk(descriptor, path, seen):
        for field in descriptor.fields:
            inner, at = field.message_type, f"{path}{field.name}"
            if inner is None:
                is_name = field.type == field.TYPE_STRING or at == "schema_id"
                if is_name and NAMES_SOMETHING.fullmatch(field.name):
                    yield at
            elif inner not in seen:
                yield from walk(inner, f"{at}.", (*seen, inner))

    return set(walk(kind.body.DESCRIPTOR, "", ()))


def touched(kind):
    """Return what a request names besides the resource of its permission."""
    return named_by(kind) - COVERED.get(kind.on, set())


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in OPERATIONS])
def test_operation_declares_all_that_it_touches(kind):
    assert touched(kind) == {target.field for target in kind.targets}


def test_operation_that_declares_nothing_is_found():
    toy = SimpleNamespace(body=pb.ConfigureSubscription, on=On.TOPIC, targets=())
    assert touched(toy) == {"settings.failure_policy.dead_letter_topic"}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in OPERATIONS])
def test_operation_names_no_place_outside_of_the_broker(kind):
    # The broker would open it with its own files and credentials.
    for field in fields_of(kind.body.DESCRIPTOR):
        assert not re.search(r"url|file|path|endpoint|option", field.name), field.name
        is_map = field.message_type and field.message_type.GetOptions().map_entry
        assert not is_map, field.name


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in OPERATIONS])
def test_frame_of_the_client_that_is_no_operation_belongs_to_a_channel(kind):
    # A request that is missing among the operations would need no permission.
    assert kind.permission is None
    of_connection = {Kind.HELLO, Kind.AUTHENTICATE, Kind.PING}
    if kind.sender is Side.CLIENT and kind not in of_connection:
        assert kind.on_channel


def test_create_is_repeatable_if_the_topic_may_exist():
    assert is_repeatable(pb.ListTopics())
    assert not is_repeatable(pb.Skip(count=1))
    assert not is_repeatable(pb.CreateTopic(topic="/default/a"))
    assert is_repeatable(pb.CreateTopic(topic="/default/a", exist_ok=True))
