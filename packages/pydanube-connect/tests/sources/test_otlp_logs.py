"""Records of logs, from Protobuf and from JSON."""

from contextlib import suppress

import msgspec
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from pydanube_connect.pure.mapping import to_payload
from pydanube_connect.pure.records import Record
from pydanube_connect.sources.pure import otlp_logs
from pydanube_connect.sources.pure.otlp_logs import (
    InvalidLogs,
    TooManyLogs,
    answer_body,
    records_in_json,
    records_in_protobuf,
)

TRACE, SPAN = bytes(range(16)), bytes(range(8))

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=5),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=8,
)


def any_value(value):
    """*value* as OTLP has it."""
    found = AnyValue()
    match value:
        case bool():
            found.bool_value = value
        case int():
            found.int_value = value
        case float():
            found.double_value = value
        case str():
            found.string_value = value
        case bytes():
            found.bytes_value = value
        case list():
            found.array_value.SetInParent()
            found.array_value.values.extend(map(any_value, value))
        case dict():
            found.kvlist_value.SetInParent()
            found.kvlist_value.values.extend(pairs(value))
    return found


def pairs(values):
    return [KeyValue(key=key, value=any_value(each)) for key, each in values.items()]


def request_with(body, attributes=None, **fields):
    """A request with one record."""
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    logs.resource.attributes.extend(pairs({"service.name": "shop"}))
    scope_logs = logs.scope_logs.add()
    scope_logs.scope.name = "orders"
    record = scope_logs.log_records.add(body=any_value(body), **fields)
    record.attributes.extend(pairs(attributes or {}))
    return request


def as_json(request):
    """*request* in JSON: identifiers are hexadecimal, unlike other bytes."""
    found = MessageToDict(request, use_integers_for_enums=True)
    for logs in found["resourceLogs"]:
        for scope_logs in logs["scopeLogs"]:
            for record in scope_logs["logRecords"]:
                for name, value in (("traceId", TRACE), ("spanId", SPAN)):
                    if name in record:
                        record[name] = value.hex().upper()
    return msgspec.json.encode(found)


def test_a_record_has_its_resource_and_scope():
    request = request_with(
        b"\xff\x00",
        {"amount": 1.5},
        time_unix_nano=1_767_323_045_000_000_007,
        severity_number=17,
        severity_text="ERROR",
        trace_id=TRACE,
        span_id=SPAN,
        event_name="order.refused",
    )
    [record] = records_in_protobuf(request.SerializeToString())
    assert record.key == "shop"
    assert record.attributes == {"otlp.severity": "ERROR"}
    assert record.value == {
        "time": "2026-01-02T03:04:05.000000007Z",
        "severity": "ERROR",
        "severity_number": 17,
        "event": "order.refused",
        "attributes": {"amount": 1.5},
        "trace_id": TRACE.hex(),
        "span_id": SPAN.hex(),
        "resource": {"service.name": "shop"},
        "scope": {"name": "orders"},
        "body": "/wA=",
    }
    assert records_in_json(as_json(request)) == [record]


@given(VALUES, st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_both_encodings_have_the_same_records(body, attributes):
    request = request_with(body, attributes)
    [record] = records_in_protobuf(request.SerializeToString())
    assert record.value["body"] == body
    assert record.value.get("attributes", {}) == attributes
    assert records_in_json(as_json(request)) == [record]
    assert to_payload(record.value)


@given(st.binary(max_size=60))
def test_other_bytes_are_invalid(data):
    for read in (records_in_json, records_in_protobuf):
        with suppress(InvalidLogs):
            assert all(isinstance(each, Record) for each in read(data))


@pytest.mark.parametrize(
    "record",
    [
        b'{"timeUnixNano": "noon"}',
        b'{"timeUnixNano": -1}',
        b'{"timeUnixNano": "18446744073709551616"}',
        b'{"body": {"intValue": "1.5"}}',
        b'{"attributes": {"a": 1}}',
        b'{"body": ' + b'{"arrayValue": {"values": [' * 5000,
    ],
)
def test_json_of_another_shape_is_invalid(record):
    body = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [%s]}]}]}' % record
    with pytest.raises(InvalidLogs, match="OTLP in JSON"):
        records_in_json(body)


def test_unknown_fields_are_left_out():
    body = b'{"new": 1, "resourceLogs": [{"scopeLogs": [{"logRecords": [{"x": 1}]}]}]}'
    [record] = records_in_json(body)
    assert record.value == {"body": None}


def test_a_large_resource_is_not_repeated_for_many_records():
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    logs.resource.attributes.extend(pairs({"x": "y" * 1_000_000}))
    scope_logs = logs.scope_logs.add()
    for _ in range(otlp_logs.BYTES_MAX // 1_000_000 + 1):
        scope_logs.log_records.add()
    with pytest.raises(TooManyLogs, match="fewer records"):
        records_in_protobuf(request.SerializeToString())


def test_empty_records_are_limited():
    # An empty record takes two bytes of Protobuf.
    records = b"\x12\x00" * (otlp_logs.RECORDS_MAX + 1)
    inner = b"\x12" + varint(len(records)) + records
    with pytest.raises(TooManyLogs, match="100,000 records"):
        records_in_protobuf(b"\x0a" + varint(len(inner)) + inner)


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def test_answers_say_what_is_refused():
    answer = ExportLogsServiceResponse.FromString(
        answer_body(is_json=False, refused=2, reason="no")
    )
    assert answer.partial_success.rejected_log_records == 2
    assert answer.partial_success.error_message == "no"
    found = msgspec.json.decode(answer_body(is_json=True, refused=2, reason="no"))
    assert found == MessageToDict(answer)
    assert answer_body(is_json=False, refused=0, reason="") == b""
