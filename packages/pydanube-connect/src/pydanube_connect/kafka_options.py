"""The connection to Kafka, for the source and the sink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.server_access import ServerAccess, access_problems

if TYPE_CHECKING:
    from confluent_kafka import KafkaError  # An extra.

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
"""Characters that a name does not have, in Kafka as in Danube."""

_PERMANENT = frozenset(
    {
        "INVALID_CONFIG",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "UNSUPPORTED_VERSION",
        "_AUTHENTICATION",
        "_UNSUPPORTED_FEATURE",
        "_INVALID_ARG",
    }
)
"""Errors that a retry does not solve."""

REQUEST_S = 10.0
"""How long a request to Kafka may take."""


class KafkaConnection(ServerAccess, frozen=True, kw_only=True):
    """The options that the source and the sink share."""

    servers: Annotated[
        str, Meta(description="The brokers of Kafka, `host:port,host:port`.")
    ] = "127.0.0.1:9092"
    sasl_mechanism: Annotated[
        str, Meta(description="How the password is sent, if there is one.")
    ] = "SCRAM-SHA-512"
    settings: Annotated[
        dict[str, str],
        Meta(description="Further settings of the client library, librdkafka."),
    ] = {}


def problems_of(options: KafkaConnection) -> dict[str, str]:
    """Return what is wrong with the connection, by option."""
    found = access_problems(options)
    if not options.servers.strip():
        found["servers"] = "must not be empty"
    if (options.username is None) != (options.password is None):
        found["password"] = "goes with a username"  # noqa: S105
    return found


def settings_of(options: KafkaConnection) -> dict[str, Any]:
    """Return the settings of a client of librdkafka."""
    protocol = "SASL_" if options.username is not None else ""
    found: dict[str, Any] = {
        "bootstrap.servers": options.servers,
        "client.id": "pydanube",
        "security.protocol": protocol + ("SSL" if options.tls else "PLAINTEXT"),
    }
    if options.username is not None:
        found["sasl.mechanism"] = options.sasl_mechanism
        found["sasl.username"] = options.username
        found["sasl.password"] = options.password
    files = {
        "ssl.ca.location": options.ca_file,
        "ssl.certificate.location": options.certificate_file,
        "ssl.key.location": options.key_file,
    }
    found |= {name: value for name, value in files.items() if value is not None}
    return {**found, **options.settings}


def failure_of(error: KafkaError, what: str) -> Exception:
    """Return the error for *error*, which has occurred while *what* was done."""
    text = f"{what}: {error.str()} ({error.name()})"
    if error.name() in _PERMANENT:
        return ConnectorFailed(text)
    return Transient(text)
