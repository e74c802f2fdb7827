"""Requests are read in all versions that are served, and answers are written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.wire.apis import (
    VERSIONS,
    Api,
    BadRequest,
    answers_of,
    parse_request,
)
from support.drivers.kafka_requests import request_bytes


def test_all_versions_have_types():
    for api, (first, last) in VERSIONS.items():
        for version in range(first, last + 1):
            answers_of(api, version)


def test_a_request_is_read_with_its_header():
    data = request_bytes(Api.HEARTBEAT, 4, group_id="g", generation_id=3, member_id="m")
    found = parse_request(data)
    assert (found.api, found.version, found.correlation_id) == (Api.HEARTBEAT, 4, 1)
    assert (found.client_id, found.body.generation_id) == ("raw", 3)


def test_unknown_tagged_fields_are_passed_over():
    data = request_bytes(Api.HEARTBEAT, 4, group_id="g", generation_id=3, member_id="m")
    assert data[-1] == 0
    tagged = data[:-1] + b"\x01\x63\x02ab"
    assert parse_request(tagged).body == parse_request(data).body


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "0 bytes"),
        (struct.pack(">hhi", 999, 0, 1), "999 is not served"),
        (struct.pack(">hhi", Api.FETCH, 99, 1), "version 99 of FETCH"),
        (struct.pack(">hhi", Api.FETCH, 4, 1) + b"\xff", "damaged"),
    ],
)
def test_what_is_no_request_is_refused(frame, reason):
    with pytest.raises(BadRequest, match=reason):
        parse_request(frame)


def test_an_unknown_version_of_api_versions_is_answered():
    found = parse_request(struct.pack(">hhi", Api.API_VERSIONS, 99, 1))
    assert (found.version, found.body) == (0, None)


@given(
    st.sampled_from(
        [
            (api, version)
            for api, (first, last) in VERSIONS.items()
            for version in range(first, last + 1)
        ]
    ),
    st.binary(max_size=100),
)
def test_arbitrary_bytes_are_read_or_refused(kind, data):
    api, version = kind
    try:
        parse_request(struct.pack(">hhi", api, version, 1) + data)
    except BadRequest:
        return
