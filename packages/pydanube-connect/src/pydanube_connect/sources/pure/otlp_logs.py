"""Records of logs in requests of OTLP, from Protobuf and from JSON.  Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from pydanube_connect.pure.failures import JSON_ERRORS
from pydanube_connect.pure.records import Record

RECORDS_MAX = 100_000
"""The most records of a request."""
BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of resources and scopes: each message has those of its record."""
SERVICE = "service.name"

_NS_PER_S = 10**9


class InvalidLogs(Exception):
    """A body that is not a request with logs."""


class TooManyLogs(Exception):
    """A request whose messages would be too many or too large."""


class _Json(msgspec.Struct, rename="camel"):
    """A message of OTLP in JSON; unknown fields are left out."""


class _Values(_Json):
    values: list[_Value] = []


class _Attribute(_Json):
    key: str = ""
    value: _Value | None = None


class _Attributes(_Json):
    values: list[_Attribute] = []


class _Value(_Json):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _Values | None = None
    kvlist_value: _Attributes | None = None
    bytes_value: str | None = None


class _LogRecord(_Json):
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    severity_number: int = 0
    severity_text: str = ""
    body: _Value | None = None
    attributes: list[_Attribute] = []
    flags: int = 0
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""


class _Scope(_Json):
    name: str = ""
    version: str = ""
    attributes: list[_Attribute] = []


class _Resource(_Json):
    attributes: list[_Attribute] = []


class _ScopeLogs(_Json):
    scope: _Scope | None = None
    log_records: list[_LogRecord] = []


class _ResourceLogs(_Json):
    resource: _Resource | None = None
    scope_logs: list[_ScopeLogs] = []


class _Request(_Json):
    resource_logs: list[_ResourceLogs] = []


def records_in_json(body: bytes) -> list[Record]:
    """
    Return the records of a request in JSON.

    Raises:
        InvalidLogs: It is not a request.
        TooManyLogs: It has too many records.
    """
    try:
        request = msgspec.json.decode(body, type=_Request)
        return _records(request, _json_value)
    except (*JSON_ERRORS, ValueError) as error:
        raise InvalidLogs(f"the body is not OTLP in JSON: {error}") from error


def records_in_protobuf(body: bytes) -> list[Record]:
    """
    Return the records of a request in Protobuf.

    Raises:
        InvalidLogs: It is not a request.
        TooManyLogs: It has too many records.
    """
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
        ExportLogsServiceRequest,
    )

    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise InvalidLogs(f"the body is not OTLP in Protobuf: {error}") from error
    return _records(request, _protobuf_value)


_ValueOf = Callable[[Any], Any]
"""Returns the value of an AnyValue of OTLP, as JSON has it."""


def _records(request: Any, value_of: _ValueOf) -> list[Record]:
    found: list[Record] = []
    size = 0
    for resource_logs in request.resource_logs:
        resource = _named(getattr(resource_logs.resource, "attributes", ()), value_of)
        resource_size = len(msgspec.json.encode(resource))
        for scope_logs in resource_logs.scope_logs:
            scope = _scope(scope_logs.scope, value_of)
            count = len(scope_logs.log_records)
            size += count * (resource_size + len(msgspec.json.encode(scope)))
            if len(found) + count > RECORDS_MAX:
                raise TooManyLogs(f"the request has more than {RECORDS_MAX:,} records")
            if size > BYTES_MAX:
                raise TooManyLogs(
                    f"the resources and scopes of all records have more than "
                    f"{BYTES_MAX:,} bytes: send fewer records in a request"
                )
            found += (
                _record(each, resource, scope, value_of)
                for each in scope_logs.log_records
            )
    return found


def _record(
    log: Any, resource: dict[str, Any], scope: dict[str, Any], value_of: _ValueOf
) -> Record:
    fields = {
        "time": _time(log.time_unix_nano),
        "observed_time": _time(log.observed_time_unix_nano),
        "severity": log.severity_text,
        "severity_number": int(log.severity_number),
        "event": log.event_name,
        "attributes": _named(log.attributes, value_of),
        "trace_id": _identifier(log.trace_id),
        "span_id": _identifier(log.span_id),
        "flags": log.flags,
        "resource": resource,
        "scope": scope,
    }
    value = {name: each for name, each in fields.items() if each}
    value["body"] = None if log.body is None else value_of(log.body)
    service = resource.get(SERVICE)
    attributes = {"otlp.severity": log.severity_text} if log.severity_text else {}
    return Record(
        value=value,
        key=service if isinstance(service, str) else None,
        attributes=attributes,
    )


def _scope(scope: Any, value_of: _ValueOf) -> dict[str, Any]:
    if scope is None:
        return {}
    fields = {
        "name": scope.name,
        "version": scope.version,
        "attributes": _named(scope.attributes, value_of),
    }
    return {name: each for name, each in fields.items() if each}


def _named(attributes: Any, value_of: _ValueOf) -> dict[str, Any]:
    return {
        each.key: None if each.value is None else value_of(each.value)
        for each in attributes
    }


def _time(nanoseconds: int | str) -> str:
    """Return a time as ISO 8601, to the nanosecond; empty: it is unknown."""
    count = int(nanoseconds)
    if not 0 <= count < 2**64:
        raise ValueError(f"{count} is not a time in nanoseconds since 1970")
    if not count:
        return ""
    seconds, rest = divmod(count, _NS_PER_S)
    second = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{second.isoformat()}.{rest:09}Z"


def _identifier(found: bytes | str) -> str:
    """Return the identifier of a trace or a span in hexadecimal."""
    text = found if isinstance(found, str) else found.hex()
    return text.lower() if text.strip("0") else ""


def _json_value(value: _Value) -> Any:
    if value.int_value is not None:
        return int(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_json_value(each) for each in value.array_value.values]
    if value.kvlist_value is not None:
        return _named(value.kvlist_value.values, _json_value)
    plain = (value.string_value, value.bool_value, value.bytes_value)
    return next((each for each in plain if each is not None), None)


def _protobuf_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    match kind:
        case "array_value":
            return [_protobuf_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return _named(value.kvlist_value.values, _protobuf_value)
        case "bytes_value":
            return b64encode(value.bytes_value).decode()
        case "string_value" | "bool_value" | "int_value" | "double_value":
            return getattr(value, kind)
    return None


def answer_body(*, is_json: bool, refused: int, reason: str) -> bytes:
    """Return the answer to a request of which *refused* records are not stored."""
    if is_json:
        partial = {"rejectedLogRecords": str(refused), "errorMessage": reason}
        return msgspec.json.encode({"partialSuccess": partial} if refused else {})
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
        ExportLogsServiceResponse,
    )

    answer = ExportLogsServiceResponse()
    if refused:
        answer.partial_success.rejected_log_records = refused
        answer.partial_success.error_message = reason
    return bytes(answer.SerializeToString())


def error_body(*, is_json: bool, reason: str) -> bytes:
    """Return the answer to a request that is refused: a google.rpc.Status."""
    if is_json:
        return msgspec.json.encode({"message": reason})
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
        ExportLogsPartialSuccess,
    )

    # Its text has the same number as that of a Status, whose class is in another
    # package.
    return bytes(ExportLogsPartialSuccess(error_message=reason).SerializeToString())
