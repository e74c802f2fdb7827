"""The connection to Kafka, for the source and the sink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.connectors.failures import ConnectorFailed, Transient
from pydanube.declarations.sections import Section

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


class KafkaConnection(Section, frozen=True):
    """The options that the source and the sink share."""

    servers: Annotated[
        str, Meta(description="The brokers of Kafka, `host:port,host:port`.")
    ] = "127.0.0.1:9092"
    username: Annotated[str | None, Meta(description="The user name.")] = None
    password: Annotated[str | None, Meta(description="The password.")] = None
    sasl_mechanism: Annotated[
        str, Meta(description="How the password is sent, if there is one.")
    ] = "SCRAM-SHA-512"
    tls: Annotated[bool, Meta(description="Whether to use TLS.")] = False
    ca_file: Annotated[
        str | None,
        Meta(description="The authorities to trust; by default those of the system."),
    ] = None
    certificate_file: Annotated[
        str | None, Meta(description="The client's certificate, with its `key_file`.")
    ] = None
    key_file: Annotated[str | None, Meta(description="The key of the client.")] = None
    settings: Annotated[
        dict[str, str],
        Meta(description="Further settings of the client library, librdkafka."),
    ] = {}


def problems_of(options: Any) -> dict[str, str]:
    """Return what is wrong with the connection, by option."""
    found = {}
    if not options.servers.strip():
        found["servers"] = "must not be empty"
    if (options.username is None) != (options.password is None):
        found["password"] = "goes with a username"  # noqa: S105
    if (options.certificate_file is None) != (options.key_file is None):
        found["key_file"] = "goes with a certificate_file"
    for name in ("ca_file", "certificate_file", "key_file"):
        if getattr(options, name) and not options.tls:
            found[name] = "needs 'tls: true'"
    return found


def settings_of(options: Any) -> dict[str, Any]:
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
