"""The application of the HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import (
    BrokerError,
    Draining,
    InvalidName,
    SessionLost,
    Unavailable,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.metrics import SERIES_MAX, Sample
from pydanube.model.topic_patterns import TopicPattern
from pydanube.model.version import __version__
from pydanube.security.addresses import host_in_url
from pydanube.security.permissions import Permission
from pydanube.security.resources import CLUSTER
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.serving.open_connections import OpenConnections
from pydanube_broker.operations.authorization import Need
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.connections.errors import http_status_of
from pydanube_broker.servers.connections.listeners import OpenListener
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.http import confluent_registry, iceberg
from pydanube_broker.servers.http.authentication import AuthenticationMiddleware
from pydanube_broker.servers.http.disconnects import DisconnectMiddleware
from pydanube_broker.servers.http.endpoints import caller_of
from pydanube_broker.servers.http.forwarding import HttpForwarding
from pydanube_broker.servers.http.openapi import openapi_document
from pydanube_broker.servers.http.operations import operation_route
from pydanube_broker.servers.http.quotas import QuotaMiddleware
from pydanube_broker.servers.http.responses import (
    error_response,
    json_response,
    on_http_error,
)
from pydanube_broker.servers.http.same_origin import SameOriginMiddleware
from pydanube_broker.servers.native.server import NativeServer
from pydanube_broker.servers.process_reports import (
    READINESS_S,
    Answer,
    ProcessReports,
    Question,
    Readiness,
    metrics_of_all,
    readiness_of_all,
)
from pydanube_broker.servers.samples import samples_of
from pydanube_broker.servers.settings.security_config import SecurityConfig
from pydanube_broker.servers.topic_samples import TopicSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of a broker besides that of HTTP."""

    stream: int
    grpc: int
    admin: int


class BrokerState:
    """The state of a starting, serving or stopping broker for the HTTP server."""

    def __init__(
        self,
        connections: Sequence[ConnectionCounts] = (),
        *,
        series_max: int = SERIES_MAX,
    ) -> None:
        self._connections = connections
        self.series_max = series_max
        """The maximum number of series of a metric."""
        self.ports: Ports | None = None
        """The other ports; None while the broker is starting."""
        self._reason: BrokerError | None = Unavailable("the broker is starting")
        self._serving: tuple[Broker, NativeServer, Sequence[Service]] | None = None
        self.listeners: Sequence[OpenListener] = ()
        """The open listeners of plug-ins."""
        self.processes: ProcessReports | None = None
        """The reports of all processes of the broker, if it has several."""

    def on_serving(
        self,
        broker: Broker,
        server: NativeServer,
        services: Sequence[Service],
        *,
        ports: Ports | None = None,
        listeners: Sequence[OpenListener] = (),
    ) -> None:
        """Record that the broker serves clients."""
        self.listeners = listeners
        self._serving = broker, server, services
        self.ports = ports
        self._reason = None

    def on_stopping(self) -> None:
        """Record that the broker is stopping."""
        self._reason = Draining("the broker is stopping (draining)")

    def why_not_ready(self) -> BrokerError | None:
        """Return the reason why topics are not served, or None if they are."""
        return (
            self._end_of_session()
            or self._reason
            or self.broker().storage.journal.failure
        )

    def _end_of_session(self) -> BrokerError | None:
        """Return why the broker serves nothing any more in its cluster."""
        shards = self._serving[0].shards if self._serving else None
        try:
            if shards is not None:
                shards.owners.check_session()
        except SessionLost as error:
            return error
        return None

    def problems(self) -> Sequence[str]:
        """Return the problems of a broker that serves topics."""
        if not self._serving:
            return ()
        of_listeners = (each.state.problems() for each in self.listeners)
        return [*self._serving[0].problems, *chain.from_iterable(of_listeners)]

    async def report(self, question: Question) -> Answer:
        """Return what this process reports, to another one of the broker."""
        if question.flush and self._serving:
            # A journal that has failed takes nothing more.
            with suppress(BrokerError):
                await self._serving[0].flush()
        reason = self.why_not_ready()
        readiness = Readiness(
            ready=reason is None,
            problems=list(self.problems()) if reason is None else [],
            code="" if reason is None else reason.code,
            message="" if reason is None else str(reason),
        )
        metrics = b""
        if question.metrics:
            metrics, _ = await _expose(self, question)
        return Answer(readiness, metrics)

    def find_connections(self) -> OpenConnections | None:
        """Return the open connections of the broker; None while it is starting."""
        return self._serving[0].connections if self._serving else None

    def broker(self) -> Broker:
        """
        Return the broker.

        Raises:
            Unavailable: The broker is starting.
        """
        if self._serving is None:
            raise Unavailable("the broker is starting")
        return self._serving[0]

    async def samples(self, pattern: TopicPattern | None = None) -> list[Sample]:
        """
        Return the current values of the metrics.

        With *pattern*, of the topics only those that match have values.
        """
        if self._serving is None:
            return []
        is_ready = self.why_not_ready() is None
        series = TopicSeries(series_max=self.series_max, pattern=pattern)
        samples = await samples_of(
            *self._serving, self._connections, series, is_ready=is_ready
        )
        for each in self.listeners:
            samples += await each.state.samples()
        return samples


async def _expose(state: BrokerState, question: Question) -> tuple[bytes, str]:
    """Return the metrics of this process, and their content type."""
    # Imported at the first scrape, so that brokers start faster; in a thread, because
    # it takes longer than the event loop may be held.
    exposition = await asyncio.to_thread(import_module, "pydanube.aio.exposition")
    pattern = None if question.topic is None else TopicPattern(question.topic)
    samples = await state.samples(pattern)
    body: tuple[bytes, str] = await exposition.expose(
        samples, question.accept, state.series_max
    )
    return body


INDEX = f"""\
pydanube broker {__version__}

/healthz  Liveness: always 200 while the process runs.
/readyz   Readiness: 200 with problems, if any, or 503 with the reason.
/metrics  Metrics for Prometheus; ?topic=PATTERN selects topics.
/api/v1   The JSON API: POST /api/v1/OPERATION; /api/v1/openapi.json describes it.
/iceberg  The Iceberg REST catalog: topics as tables, to read.
/subjects The schema registry, as serializers of Kafka's clients use it.

"""


def make_app(
    state: BrokerState,
    hosts: Iterable[str] = (),
    authenticator: Authenticator | None = None,
    forwarding: HttpForwarding | None = None,
) -> Starlette:
    """
    Return the application of the HTTP server over a broker's *state*.

    *hosts* are the broker's host names; see ``same_origin``.  Without *authenticator*,
    clients need no credentials.  *forwarding* is the way to other processes.
    """
    verifier = authenticator or Authenticator(SecurityConfig())

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    def processes_for(request: Request) -> ProcessReports | None:
        """Return the processes that share the port of *request*, if any do."""
        _, port = request.scope.get("server") or ("", None)
        processes = state.processes
        is_own = processes is None or port == processes.own_port
        return None if is_own else processes

    async def readyz(request: Request) -> Response:
        if (processes := processes_for(request)) is not None:
            answers = await processes.ask_all(Question(), READINESS_S)
            found = readiness_of_all(answers)
            return json_response(found, 200 if found.ready else 503)
        reason = state.why_not_ready()
        if reason is None:
            problems = list(state.problems())
            return JSONResponse(
                {"ready": True, "problems": problems} if problems else {"ready": True}
            )
        return JSONResponse(
            {"ready": False, "code": reason.code, "message": str(reason)},
            status_code=http_status_of(reason),
        )

    async def metrics(request: Request) -> Response:
        if (refusal := _refusal_of_metrics(state, request)) is not None:
            return error_response(refusal)
        topic = request.query_params.get("topic")
        try:
            if topic is not None:
                TopicPattern(topic)
        except InvalidName as error:
            return error_response(error)
        accept = request.headers.get("accept", "")
        question = Question(metrics=True, topic=topic, accept=accept)
        if (processes := processes_for(request)) is None:
            body, content_type = await _expose(state, question)
        else:
            from pydanube.aio.exposition import content_type_of  # noqa: PLC0415

            answers = await processes.ask_all(question)
            body = await metrics_of_all(answers, LongWork())
            content_type = content_type_of(accept)
        # A header, because Starlette would add a second charset to a media type.
        return Response(body, headers={"content-type": content_type})

    async def index(request: Request) -> Response:
        host = request.url.hostname or "localhost"
        return PlainTextResponse(INDEX + _addresses(request.url.scheme, host, state))

    async def openapi(_: Request) -> Response:
        return json_response(openapi_document())

    return Starlette(
        routes=[
            Route("/", index),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            iceberg.iceberg_routes(state.broker),
            *confluent_registry.registry_routes(state.broker, verifier),
            Mount(
                "/api/v1",
                routes=[
                    Route("/openapi.json", openapi),
                    operation_route(state.broker, verifier, forwarding),
                ],
            ),
        ],
        middleware=[
            Middleware(DisconnectMiddleware),
            Middleware(SameOriginMiddleware, hosts=hosts),
            Middleware(
                AuthenticationMiddleware,
                authenticator=verifier,
                on_error=_response_to_refused,
            ),
            Middleware(
                QuotaMiddleware, broker=state.broker, on_error=_response_to_refused
            ),
        ],
        exception_handlers={HTTPException: on_http_error},
    )


def _response_to_refused(path: str, error: BrokerError) -> Response:
    """Return the response to a request for *path* that is not carried out."""
    if path.startswith(f"{iceberg.PATH}/"):
        return iceberg.iceberg_error(error)
    if path.startswith(confluent_registry.PATHS):
        return confluent_registry.registry_error(error)
    return error_response(error)


def _refusal_of_metrics(state: BrokerState, request: Request) -> BrokerError | None:
    """Return why *request* may not read the metrics, which name topics, or None."""
    needed = [Need(Permission.DESCRIBE, CLUSTER)]
    try:
        broker = state.broker()
        if broker.access.is_enforced:
            caller_of(request, broker).check(needed, "metrics")
    except Unavailable:
        # A broker that is starting has no metrics.
        return None
    except BrokerError as error:
        return error
    return None


def _addresses(scheme: str, host: str, state: BrokerState) -> str:
    """Return the end of the index page: the other addresses of the broker."""
    if (ports := state.ports) is None:
        return "The broker is starting.\n"
    host = host_in_url(host)
    stream_scheme = "danubes" if scheme == "https" else "danube"
    is_encrypted = scheme == "https"
    listeners = "".join(
        f"{each.url(host, is_encrypted=is_encrypted)}  {each.config.TITLE}.\n"
        for each in state.listeners
    )
    return (
        "Clients connect to other ports:\n\n"
        f"{stream_scheme}://{host}:{ports.stream}  The native protocol.\n"
        f"{scheme}://{host}:{ports.grpc}  The gRPC API of the original Danube.\n"
        f"{scheme}://{host}:{ports.admin}  The gRPC API of its administration tools.\n"
        f"{listeners}"
    )
