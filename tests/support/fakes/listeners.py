"""The same question on each of a broker's four listeners, with chosen credentials."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

import pydanube

# Importing them makes their services known.
from pydanube.wire.pb import (  # noqa: F401
    danube_admin_pb2,
    danube_api_pb2,
    schema_registry_pb2,
)
from support.fakes.grpc_calls import connected

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LISTENERS = ("stream", "grpc", "admin", "http")
OK = "ok"
NOT_CONNECTED = "not connected"
"""The answer for a client that TLS refuses."""
REDIRECTED = "redirected"
ANSWER_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Asker:
    """A client of all listeners of one broker."""

    urls: dict[str, str]
    ca_file: Path | None = None
    certificate: tuple[Path, Path] | None = None
    """The files of the client's certificate and key."""
    credential: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """More headers, for the listeners that have some."""

    async def look(self, listener: str) -> str:
        """Ask for something that everybody with an identity may ask for."""
        return await self._ask(
            listener,
            lambda client: client.topics.list(),
            grpc=("danube_schema.SchemaRegistry/ListSubjects", {}),
            admin=("danube_admin.BrokerAdmin/ListNamespaces", {}),
            http=("GET", "/api/v1/list_topics", None),
        )

    async def create(self, listener: str, topic: str) -> str:
        """Ask to create a topic."""
        return await self._ask(
            listener,
            lambda client: client.topics.create(topic),
            grpc=(
                "danube.ProducerService/CreateProducer",
                {"topic_name": topic, "producer_name": "p", "dispatch_strategy": 1},
            ),
            admin=("danube_admin.TopicAdmin/CreateTopic", {"name": topic}),
            http=("POST", "/api/v1/create_topic", {"topic": topic}),
        )

    async def describe(self, listener: str, topic: str) -> str:
        """Ask about a topic; *topic* is sent as it is."""
        return await self._ask(
            listener,
            lambda client: client.topics.describe(topic),
            grpc=("danube.Discovery/TopicLookup", {"topic": topic}),
            admin=("danube_admin.TopicAdmin/DescribeTopic", {"name": topic}),
            http=("POST", "/api/v1/describe_topic", {"topic": topic}),
        )

    async def _ask(
        self,
        listener: str,
        stream: Callable[[pydanube.Client], Any],
        **requests: tuple[Any, ...],
    ) -> str:
        """Return "ok", or the code of the error that the broker answers."""
        if listener == "stream":
            return await self._stream(stream)
        if listener == "http":
            return await asyncio.to_thread(self._http, *requests["http"])
        return await self._grpc(listener, *requests[listener])

    async def _stream(self, question: Callable[[pydanube.Client], Any]) -> str:
        is_key = self.credential.startswith("danube_")
        options: dict[str, Any] = {
            "api_key" if is_key else "token": self.credential,
            "ca_file": self.ca_file,
        }
        if self.certificate is not None:
            certificate_file, key_file = self.certificate
            options |= {"certificate_file": certificate_file, "key_file": key_file}
        try:
            async with pydanube.connect(self.urls["stream"], **options) as client:
                await question(client)
        except pydanube.Unauthenticated as error:
            # The client reports failures of TLS as the same error.
            return NOT_CONNECTED if "certificate" in str(error) else error.code
        except pydanube.BrokerError as error:
            return error.code
        return OK

    async def _grpc(self, listener: str, method: str, fields: dict[str, Any]) -> str:
        headers = {name.lower(): value for name, value in self._headers().items()}
        port = port_of(self.urls[listener])
        async with connected(port, self._channel_credentials()) as call:
            try:
                # A channel tries for ever to connect to a server that refuses it.
                await call(
                    method,
                    call.request_type(method)(**fields),
                    metadata=tuple(headers.items()),
                    timeout=ANSWER_TIMEOUT_S,
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    return NOT_CONNECTED
                return error.code().name.lower()
        return OK

    def _http(self, method: str, path: str, body: Any) -> str:
        url = self.urls["http"]
        port = port_of(url)
        connection: http.client.HTTPConnection
        if url.startswith("https"):
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
            connection = http.client.HTTPSConnection(
                *("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(
                *("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S
            )
        headers = {**self._headers(), "content-type": "application/json"}
        try:
            # This sends the path as it is, also one with dots.
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (ssl.SSLError, ConnectionError):
            return NOT_CONNECTED
        finally:
            connection.close()
        if 300 <= answer.status < 400:
            return REDIRECTED
        code: str = OK if answer.status < 300 else json.loads(text)["code"]
        return code

    def _headers(self) -> dict[str, str]:
        if not self.credential:
            return dict(self.headers)
        return {"authorization": f"Bearer {self.credential}", **self.headers}

    def _channel_credentials(self) -> grpc.ChannelCredentials | None:
        if self.ca_file is None:
            return None
        certificate, key = (
            (None, None)
            if self.certificate is None
            else (each.read_bytes() for each in self.certificate)
        )
        return grpc.ssl_channel_credentials(self.ca_file.read_bytes(), key, certificate)


def port_of(url: str) -> int:
    """Return the port in the URL of a listener."""
    return int(url.rpartition(":")[2])


def urls_of(broker: Any) -> dict[str, str]:
    """Return the URLs of the listeners of a running broker."""
    return {name: getattr(broker, f"{name}_url") for name in LISTENERS}
