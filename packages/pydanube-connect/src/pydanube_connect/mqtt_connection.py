"""The connection to an MQTT broker, for the source and the sink."""

from __future__ import annotations

import ssl
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.aio.certificates import load_certificate
from pydanube.declarations.pure.sections import parse_duration
from pydanube_connect.option_problems import duration_problems
from pydanube_connect.pure.failures import Transient
from pydanube_connect.server_access import ServerAccess, access_problems

if TYPE_CHECKING:
    import aiomqtt  # An extra.


class Version(Enum):
    """The version of the protocol."""

    V311 = "3.1.1"
    V5 = "5"


class MqttConnection(ServerAccess, frozen=True, kw_only=True):
    """The options that the source and the sink share."""

    host: Annotated[str, Meta(description="The MQTT broker.")] = "127.0.0.1"
    port: Annotated[int, Meta(description="Its port; usually 8883 with TLS.")] = 1883
    version: Annotated[Version, Meta(description="The version of the protocol.")] = (
        Version.V5
    )
    keep_alive: Annotated[
        str, Meta(description="How often the connection is checked.")
    ] = "60s"

    @property
    def address(self) -> str:
        return f"the MQTT broker at {self.host}:{self.port}"


def connection_problems(options: MqttConnection) -> dict[str, str]:
    """Return what is wrong with the connection, by option."""
    found = {}
    if not 1 <= options.port <= 65535:
        found["port"] = "must be 1 to 65535"
    found |= duration_problems(options, "keep_alive")
    return found | access_problems(options)


async def check_connection(options: MqttConnection) -> None:
    """
    Connect and disconnect, with an identifier that the MQTT broker chooses.

    Raises:
        Transient: This is not possible.
    """
    import aiomqtt  # noqa: PLC0415

    try:
        async with mqtt_client(options, identifier=""):
            return
    except aiomqtt.MqttError as error:
        raise Transient(f"{options.address}: {error}") from error


def mqtt_client(options: MqttConnection, **more: Any) -> aiomqtt.Client:
    """Return a client that is not connected yet; *more* are arguments of aiomqtt."""
    import aiomqtt  # noqa: PLC0415

    versions = {
        Version.V311: aiomqtt.ProtocolVersion.V311,
        Version.V5: aiomqtt.ProtocolVersion.V5,
    }
    if options.tls:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.certificate_file and options.key_file:
            load_certificate(context, options.certificate_file, options.key_file)
        more["tls_context"] = context
    return aiomqtt.Client(
        options.host,
        options.port,
        username=options.username,
        password=options.password,
        keepalive=int(parse_duration(options.keep_alive)),
        protocol=versions[options.version],
        **more,
    )
