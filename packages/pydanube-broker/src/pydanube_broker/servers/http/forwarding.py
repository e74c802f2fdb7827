"""
Requests that another process of the broker answers.

All processes accept connections at the HTTP port, so a request about a topic reaches
any of them.  The process that refuses it with ``NotOwner`` makes the request at the
process that serves the topic, and passes the answer on.  The request carries the
credentials of the client, so the other process checks them again.  A client that is
known by its certificate has none to pass on.
"""

from __future__ import annotations

import asyncio
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from pydanube.model.errors import ConnectionLost
from pydanube.model.names import TopicName
from pydanube_broker.broker.broker import Broker
from pydanube_broker.cluster.overview import PEER_HTTP
from pydanube_broker.servers.http.responses import JSON

if TYPE_CHECKING:
    from pydanube_broker.servers.grpc.peer_channels import PeerFiles

FORWARDED = "x-danube-forwarded"
"""The header of forwarded requests, which are not forwarded again."""
TIMEOUT_S = 30.0
"""How long the other process may take."""


class HttpForwarding:
    """The way to the HTTP ports of the other processes of the broker."""

    def __init__(self, files: PeerFiles) -> None:
        """*files* are those for TLS with other processes."""
        self._files = files

    async def answer(
        self, request: Request, broker: Broker, topic: str, body: bytes
    ) -> Response | None:
        """
        Make a POST with *body* at the process that serves *topic*.

        Returns: None if *request* was forwarded already, or this process serves it now.

        Raises:
            ConnectionLost: The process did not answer.
        """
        if FORWARDED in request.headers:
            return None
        addresses = await broker.topics.find_addresses(TopicName.parse(topic))
        if PEER_HTTP not in addresses:
            return None
        proof = broker.quotas.shared.proof
        headers = {"content-type": JSON, FORWARDED: proof}
        if "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        url, path = addresses[PEER_HTTP], request.url.path
        return await asyncio.to_thread(self._post, url, path, headers, body)

    def _post(
        self, url: str, path: str, headers: dict[str, str], body: bytes
    ) -> Response:
        connection = self._connection_to(url)
        try:
            connection.request("POST", path, body, headers)
            found = connection.getresponse()
            return Response(
                found.read(), found.status, media_type=found.headers["content-type"]
            )
        except (OSError, HTTPException) as error:
            raise ConnectionLost(
                f"the process at {url}, which serves the topic, did not answer: {error}"
            ) from error
        finally:
            connection.close()

    def _connection_to(self, url: str) -> HTTPConnection:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return HTTPConnection(host, port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._files.ca or None)
        context.load_cert_chain(self._files.certificate, self._files.key)
        return HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
