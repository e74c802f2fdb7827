"""The reason codes of MQTT for the errors of the broker.  Pure."""

from __future__ import annotations

from pydanube.model.errors import (
    BrokerError,
    Conflict,
    InvalidPayload,
    InvalidRequest,
    QuotaExceeded,
    Refused,
    SchemaMismatch,
    SchemaNotFound,
)
from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    V5,
    Properties,
    Property,
    Reason,
)

REASON_CHARACTERS_MAX = 512
"""The longest text that explains a reason code."""

_REASONS: dict[type[BrokerError], Reason] = {
    QuotaExceeded: Reason.QUOTA_EXCEEDED,
    Refused: Reason.NOT_AUTHORIZED,
    InvalidPayload: Reason.PAYLOAD_FORMAT_INVALID,
    SchemaMismatch: Reason.PAYLOAD_FORMAT_INVALID,
    SchemaNotFound: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    InvalidRequest: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    Conflict: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
}
"""The reason codes of errors that stay; the first row that fits counts."""


def reason_of(error: BrokerError) -> Reason | None:
    """Return the reason code of an error; None if the request may succeed later."""
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    return None


def explained(text: str, version: int) -> Properties:
    """Return the properties that explain a reason code, if a *version* has some."""
    if version < V5 or not text:
        return NO_PROPERTIES
    return {Property.REASON_STRING: text[:REASON_CHARACTERS_MAX].replace("\0", "")}
