"""The HTTP server over a fake broker state."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Timestamp

from pydanube.aio.http_server import config_of, listener_at, serving
from pydanube.model import metrics
from pydanube.model.errors import (
    BrokerError,
    Draining,
    InvalidConfig,
    JournalFailed,
    Unavailable,
)
from pydanube.model.histograms import Exemplar, Histogram, bucket_of
from pydanube.model.metrics import SERIES_MAX, MetricKind
from pydanube.model.names import TopicName
from pydanube_broker.servers.http.app import Ports, make_app
from pydanube_broker.servers.http.server import open_http

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.metrics import Metric, Sample, Value
    from pydanube.model.topic_patterns import TopicPattern
    from pydanube_broker.broker.broker import Broker
    from pydanube_broker.servers.connections.listeners import OpenListener

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass
class State:
    """A fake broker state."""

    reason: BrokerError | None = None
    counted: list[Sample] = field(default_factory=list)
    problems_now: tuple[str, ...] = ()
    ports: Ports | None = None
    listeners: Sequence[OpenListener] = ()
    series_max: int = SERIES_MAX
    processes: None = None

    def problems(self) -> tuple[str, ...]:
        return self.problems_now

    def why_not_ready(self) -> BrokerError | None:
        return self.reason

    async def samples(self, pattern: TopicPattern | None = None) -> list[Sample]:
        return [
            sample
            for sample in self.counted
            if pattern is None or pattern.matches(TopicName.parse(sample[1][0]))
        ]

    def find_connections(self) -> None:
        return None

    def broker(self) -> Broker:
        raise self.reason or Unavailable("there is no broker here")


def value_of(metric: Metric) -> Value:
    return Histogram() if metric.kind is MetricKind.HISTOGRAM else 1.0


def get(path: str, state: State | None = None, **headers: str) -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(state or State()))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://broker"
        ) as client:
            return await client.get(path, headers=headers)

    return asyncio.run(main())


def test_healthz_is_200_even_when_not_ready() -> None:
    assert get("/healthz", State(Draining("stopping"))).status_code == 200


def test_readyz_is_200_without_a_reason() -> None:
    answer = get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})


def test_readyz_lists_problems() -> None:
    answer = get("/readyz", State(problems_now=("sealing /default/a fails",)))
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "problems": ["sealing /default/a fails"]},
    )


@pytest.mark.parametrize(
    "reason",
    [Unavailable("starting"), Draining("stopping"), JournalFailed("disk is gone")],
)
def test_readyz_is_503_with_the_reason(reason: BrokerError) -> None:
    answer = get("/readyz", State(reason))
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "code": reason.code,
        "message": str(reason),
    }


def test_index_page_lists_all_paths() -> None:
    page = get("/").text
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json"):
        assert path in page
        assert get(path).status_code == 200
    assert "The broker is starting." in page


def test_index_page_lists_the_ports_of_the_broker() -> None:
    page = get("/", State(ports=Ports(stream=7000, grpc=7001, admin=7002))).text
    for url in ("danube://broker:7000", "http://broker:7001", "http://broker:7002"):
        assert f"\n{url}  " in page


def test_first_scrape_imports_what_it_needs_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []

    class Finder:
        """Tells in which thread a module is looked for."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "pydanube.aio.exposition":
                with pytest.raises(RuntimeError, match="no running event loop"):
                    asyncio.get_running_loop()
                threads.append(name)

    monkeypatch.delitem(sys.modules, "pydanube.aio.exposition", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert get("/metrics", State()).status_code == 200
    assert threads == ["pydanube.aio.exposition"]


def test_metrics_are_read_at_the_scrape() -> None:
    state = State(counted=[(metrics.MESSAGES_IN, (), 5)])
    assert "\ndanube_messages_in_total 5.0\n" in get("/metrics", state).text
    state.counted = [(metrics.MESSAGES_IN, (), 6)]
    assert "\ndanube_messages_in_total 6.0\n" in get("/metrics", state).text


def test_labels_are_escaped() -> None:
    state = State(counted=[(metrics.BACKLOG, ("/default/a", 'say "hi"\n\\'), 3)])
    assert (
        'danube_subscription_backlog_messages{subscription="say \\"hi\\"\\n\\\\",'
        'topic="/default/a"} 3.0'
    ) in get("/metrics", state).text


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_every_metric_is_exposed_under_its_declared_name(accept: str) -> None:
    state = State(
        counted=[
            (metric, tuple("x" for _ in metric.labels), value_of(metric))
            for metric in metrics.METRICS
        ]
    )
    answer = get("/metrics", state, accept=accept)
    assert answer.headers["content-type"].startswith(accept.partition(";")[0])
    names = {line.split("{")[0].split(" ")[0] for line in answer.text.splitlines()}
    histograms = {m.name for m in metrics.METRICS if m.kind is MetricKind.HISTOGRAM}
    assert {metric.name for metric in metrics.METRICS} - histograms <= names
    for suffix in ("bucket", "sum", "count"):
        assert {f"{name}_{suffix}" for name in histograms} <= names


def test_buckets_of_a_histogram_are_cumulative() -> None:
    seconds = Histogram()
    seconds.observe(0.0002, 2)
    seconds.observe(0.3)
    text = get("/metrics", State(counted=[(metrics.PUBLISH_SECONDS, (), seconds)])).text
    assert 'danube_publish_seconds_bucket{le="0.0001"} 0.0\n' in text
    assert 'danube_publish_seconds_bucket{le="0.00025"} 2.0\n' in text
    assert 'danube_publish_seconds_bucket{le="+Inf"} 3.0\n' in text
    assert "danube_publish_seconds_sum 0.3004\n" in text
    assert "danube_publish_seconds_count 3.0\n" in text


def test_buckets_of_openmetrics_have_exemplars() -> None:
    exemplar = Exemplar("ab" * 16, "cd" * 8, 0.2, 17.5)
    seconds = Histogram({bucket_of(0.2): exemplar})
    seconds.observe(0.2)
    # Histograms with the same labels are added.
    counted = [(metrics.PUBLISH_SECONDS, (), each) for each in (seconds, Histogram())]
    text = get("/metrics", State(counted=[*counted]), accept=OPENMETRICS).text
    found = {
        sample.labels["le"]: sample.exemplar
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.exemplar is not None
    }
    labels = {"trace_id": "ab" * 16, "span_id": "cd" * 8}
    assert found == {"0.25": (labels, 0.2, Timestamp(17, 500_000_000))}
    # The older format has none.
    assert "span_id" not in get("/metrics", State(counted=counted)).text


def test_topics_are_selected_by_a_pattern() -> None:
    counted = [
        (metrics.TOPIC_MESSAGES_IN, (name,), 1.0) for name in ("/default/a", "/x/b")
    ]
    text = get("/metrics?topic=/default/*", State(counted=[*counted])).text
    assert 'danube_topic_messages_in_total{topic="/default/a"} 1.0' in text
    assert "/x/b" not in text


def test_a_wrong_pattern_of_topics_is_refused() -> None:
    answer = get("/metrics?topic=orders")
    assert answer.status_code == 400
    assert "the pattern orders must be /namespace/topic" in answer.json()["message"]


def test_series_beyond_the_setting_are_added_up() -> None:
    counted = [(metrics.TOPIC_MESSAGES_IN, (name,), 1.0) for name in "abc"]
    text = get("/metrics", State(counted=[*counted], series_max=1)).text
    assert 'danube_topic_messages_in_total{topic="(other)"} 2.0' in text


def test_process_metrics_are_exposed() -> None:
    assert "process_cpu_seconds_total" in get("/metrics").text


async def test_port_0_is_a_free_port() -> None:
    async with open_http("127.0.0.1", 0, State()) as port:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/healthz")
        assert answer.json() == {"alive": True}
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"127.0.0.1:{port} .*in use"):
            async with open_http("127.0.0.1", port, State()):
                pass


async def test_server_does_not_handle_signals() -> None:
    before = [signal.getsignal(sig) for sig in (signal.SIGINT, signal.SIGTERM)]

    async def main() -> list[Any]:
        async with open_http("127.0.0.1", 0, State()):
            return [signal.getsignal(signal.SIGTERM)]

    assert await main() == before[1:]
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


async def test_idle_connection_does_not_delay_the_end() -> None:
    async with asyncio.timeout(60):
        async with open_http("127.0.0.1", 0, State()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert (await reader.read()).endswith(b'{"alive":true}')
        writer.close()


async def test_error_of_the_body_closes_the_server() -> None:
    ports = []

    async def main() -> None:
        async with open_http("127.0.0.1", 0, State()) as port:
            ports.append(port)
            raise Draining("from the body")

    with pytest.raises(Draining):
        await main()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))


FORWARDED = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}


async def index_through(trusted_proxies: tuple[str, ...]) -> tuple[str, str]:
    """Return what the server takes for the address and the scheme of a client."""
    seen: list[tuple[str, str]] = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listener = listener_at("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        serving(config_of(app, trusted_proxies), listener),
        httpx.AsyncClient() as http,
    ):
        await http.get(url, headers=FORWARDED)
    return seen[0]


async def test_forwarded_address_of_a_client_of_this_machine_means_nothing() -> None:
    assert await index_through(()) == ("127.0.0.1", "http")
    assert await index_through(("10.0.0.0/8",)) == ("127.0.0.1", "http")


async def test_forwarded_address_counts_if_it_comes_from_a_trusted_proxy() -> None:
    for trusted in (("127.0.0.1",), ("10.0.0.0/8", "127.0.0.0/24")):
        assert await index_through(trusted) == ("203.0.113.7", "https")
