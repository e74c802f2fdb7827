"""The HTTP server from which Prometheus reads the metrics of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from pydanube.aio.exposition import registry_of
from pydanube.model.errors import Conflict
from pydanube.model.metrics import Sample
from pydanube.security.addresses import host_in_url, parse_listen
from pydanube_spark.pipelines.pure.run_metrics import samples_of
from pydanube_spark.pipelines.state import StateDirectory


@contextmanager
def serving_metrics(listen: str, state: StateDirectory) -> Iterator[str]:
    """
    Serve the metrics of the run in *state* while the body runs; yield the URL.

    They are read from the files of the run, so they need not come from this process.

    Raises:
        InvalidConfig: *listen* is not an address.
        Conflict: Another process listens there, or the host has no such address.
    """
    host, port = parse_listen(listen)

    def collect() -> Iterator[Sample]:
        record = state.read_record()
        if record is not None:
            yield from samples_of(record, state.read_status())

    try:
        server, thread = start_http_server(port, host, registry_of(collect))
    except OSError as error:
        raise Conflict(
            f"metrics cannot be served at {listen}: {error.strerror or error}"
        ) from None
    try:
        yield f"http://{host_in_url(host)}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
