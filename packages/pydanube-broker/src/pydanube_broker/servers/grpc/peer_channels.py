"""Connections to the gRPC listeners of other brokers of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pydanube.aio.file_reloading import FromFiles
from pydanube.model.errors import InvalidConfig
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.servers.grpc.services import StatusError
from pydanube_broker.wire.grpc.status import StatusCode

if TYPE_CHECKING:
    import grpc.aio

CHANNELS_MAX = 256
"""The most connections to other brokers that are kept."""

_OPTIONS = [
    # The broker limits what it sends, and ours limits what it accepts from clients.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]


class Unreachable(StatusError):
    """Another broker cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFiles:
    """The files for TLS with other brokers; an empty name: there is none."""

    ca: str = ""
    """The authorities of their certificates; without it, those of the system."""
    certificate: str = ""
    """The certificate of this broker.  With it, calls are made over TLS only."""
    key: str = ""


class PeerTls(NamedTuple):
    """The contents of ``PeerFiles``, in PEM format."""

    roots: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class PeerChannels:
    """The connections of one broker to the others."""

    def __init__(self, files: PeerFiles | None = None) -> None:
        """
        *files* are read again when they change; without them there is no TLS of this
        broker's own.

        Raises:
            InvalidConfig: A file cannot be read.
        """
        files = files or PeerFiles()
        self._tls = FromFiles(
            lambda: _read(files),
            (files.ca, files.certificate, files.key),
            "certificates for other brokers",
        )
        self._channels: dict[tuple[str, PeerTls], grpc.aio.Channel] = {}

    async def to(self, target: str) -> grpc.aio.Channel:
        """
        Return the connection to a broker, which is kept.

        Raises:
            Unreachable: This broker has TLS, and the other one does not.
        """
        import grpc.aio  # noqa: PLC0415  # As above.

        tls = self._tls.get()
        if (target, tls) not in self._channels:
            parts = urlsplit(target)
            if parts.scheme == "https":
                credentials = grpc.ssl_channel_credentials(
                    tls.roots, tls.key, tls.certificate
                )
                channel = grpc.aio.secure_channel(
                    *(parts.netloc, credentials), options=_OPTIONS
                )
            elif tls.certificate is not None:
                raise Unreachable(
                    StatusCode.UNAVAILABLE,
                    f"the broker at {target}, which serves the topic, has no TLS, and "
                    "this one forwards calls over TLS only: set 'tls' on all brokers",
                )
            else:
                channel = grpc.aio.insecure_channel(parts.netloc, options=_OPTIONS)
            self._channels[target, tls] = channel
            if len(self._channels) > CHANNELS_MAX:
                oldest = self._channels.pop(next(iter(self._channels)))
                await oldest.close()
        return self._channels[target, tls]

    async def close(self) -> None:
        """Close the connections to other brokers."""
        for channel in self._channels.values():
            await channel.close()


@asynccontextmanager
async def open_peer_channels(
    files: PeerFiles | None = None,
) -> AsyncIterator[PeerChannels]:
    """
    Keep connections to other brokers during the body.

    Raises:
        InvalidConfig: One of *files* cannot be read.
    """
    channels = PeerChannels(files)
    try:
        yield channels
    finally:
        await channels.close()


def _read(files: PeerFiles) -> PeerTls:
    return PeerTls(
        _content(files.ca, "cluster.ca_file"),
        _content(files.certificate, "tls.certificate_file"),
        _content(files.key, "tls.key_file"),
    )


def _content(name: str, setting: str) -> bytes | None:
    try:
        return Path(name).read_bytes() if name else None
    except OSError as error:
        raise InvalidConfig(
            f"{setting}: {name} cannot be read: {error.strerror}"
        ) from error
