"""Messages about schemas are converted to and from the model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import (
    Compatibility,
    SchemaPolicy,
    SchemaReference,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
    TopicSchema,
)
from pydanube.wire.native import schema_messages as messages
from pydanube.wire.pb import stream_pb2 as pb

texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
numbers = st.integers(1, 2**31 - 1)
tags = st.lists(texts, max_size=3).map(tuple)


@given(
    st.builds(
        SchemaVersion,
        subject=names,
        schema_id=numbers,
        version=numbers,
        type=st.sampled_from(SchemaType),
        definition=texts,
        message=st.none() | names,
        fingerprint=texts,
        description=texts,
        created_at=st.integers(-(2**62), 2**62),
        created_by=texts,
        tags=tags,
    )
)
def test_a_version_arrives(version):
    sent = messages.schema_version_to_wire(version)
    assert messages.schema_version_from_wire(sent) == version


@given(
    st.builds(
        SubjectDescription,
        subject=names,
        schema_id=numbers,
        type=st.sampled_from(SchemaType),
        compatibility=st.sampled_from(Compatibility),
        versions=st.lists(numbers, max_size=3).map(tuple),
        tags=tags,
    )
)
def test_a_subjects_description_arrives(description):
    sent = messages.subject_to_wire(description)
    assert messages.subject_from_wire(sent) == description


@given(
    st.builds(
        TopicSchema,
        subject=names,
        policy=st.sampled_from(SchemaPolicy),
        validates_payload=st.booleans(),
        version=st.none() | numbers,
        version_min=st.none() | numbers,
    )
)
def test_topic_schema_arrives(schema):
    sent = messages.topic_schema_to_wire(schema)
    assert messages.topic_schema_from_wire(sent) == schema


@given(
    st.builds(
        SchemaReference,
        subject=names,
        version=st.none() | numbers,
        version_min=st.none() | numbers,
    )
)
def test_writer_schema_arrives(reference):
    sent = messages.reference_to_wire(reference)
    assert messages.reference_from_wire(sent) == reference


def test_words_of_a_newer_peer_are_refused_and_not_guessed():
    with pytest.raises(InvalidRequest, match="no schema type 'thrift'"):
        messages.schema_version_from_wire(pb.SchemaVersion(type="thrift"))
    with pytest.raises(InvalidRequest, match="Invalid compatibility mode"):
        messages.subject_from_wire(
            pb.SubjectDescription(type="avro", compatibility="some")
        )
    with pytest.raises(InvalidRequest, match="Invalid validation policy"):
        messages.topic_schema_from_wire(pb.TopicSchema(subject="s", policy="perhaps"))
    with pytest.raises(InvalidRequest, match="name the subject"):
        messages.topic_schema_from_wire(pb.TopicSchema())
