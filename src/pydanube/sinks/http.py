"""
The sink ``danube-http``: rows to a web server, many in one request.

A server that deduplicates by the header ``Idempotency-Key`` processes each request
once, however often Spark repeats the task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.retry import RetryPolicy
from pydanube.reader.catalog import process_client
from pydanube.reader.read_options import URL_DEFAULT
from pydanube.sinks import secrets
from pydanube.sinks.http_bodies import FORMATS, Format, idempotency_key
from pydanube.sinks.option_tables import HTTP_OPTIONS
from pydanube.sinks.requests import Requests, summarize
from pydanube.sinks.retrying import parse_retry_policy
from pydanube.spark.dataframe_columns import arrow_schema
from pydanube.spark.sink import BatchIdentity, BatchKey, TaskKey
from pydanube.spark.sink_data_source import SinkDataSource
from pydanube.spark.sink_options import parse_sink_options

log = logging.getLogger(__name__)

METHODS = ("POST", "PUT", "PATCH")

ADDRESS_STATUSES = frozenset({401, 403, 404, 405, 407})
"""Statuses that concern the credentials or the URL: all rows would be rejected."""


class HttpDataSource(SinkDataSource):
    """``format("danube-http")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-http"

    def sink(self, schema: StructType) -> tuple[HttpSink, BatchIdentity]:
        sink = HttpSink.parse(dict(self.options), arrow_schema(schema))
        return sink, sink.identity


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent sending rows of *schema*; empty if nothing."""
    sink = HttpSink.parse(options, arrow_schema(schema))
    no_retries = RetryPolicy(0, 0, retries_max=0)
    with closing(Requests(timeout_s=sink.timeout_s, retries=no_retries)) as requests:
        # Only a request with rows could tell whether the server accepts rows.
        requests.send(
            "OPTIONS", sink.url, headers=sink.headers, is_retryable=lambda _: False
        )
    if sink.dead_letter_topic is not None:
        process_client(sink.dead_letter_url).describe_broker()
    return []


@dataclass(frozen=True, slots=True)
class SentRows:
    """The result of one task."""

    row_count: int
    dead_letter_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSink:
    """Sends batches to a server."""

    url: str = field(repr=False)
    method: str
    format: Format
    headers: Mapping[str, str] = field(repr=False)
    rows_max: int
    bytes_max: int
    timeout_s: float
    retries: RetryPolicy
    dead_letter_topic: str | None
    dead_letter_url: str
    identity: BatchIdentity

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema) -> HttpSink:
        """
        Return the sink with *options* for rows of *schema*.

        Raises:
            InvalidConfig: An option is unknown or malformed, or contradicts another, or
                the format does not support a type.
            InvalidName: The name of the dead-letter topic is invalid.
        """
        given = parse_sink_options(options, HTTP_OPTIONS)
        url = given.text("url")
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig("url: must begin with http:// or https://")
        headers = given.family("header.")
        for name, value in headers.items():
            if not (name + value).isascii() or not value.isprintable():
                raise InvalidConfig(f"header.{name}: must be printable ASCII")
        topic = given.text("deadLetterTopic")
        if "deadLetterUrl" in given and not topic:
            raise InvalidConfig("deadLetterUrl: only with deadLetterTopic")
        format = FORMATS[given.choice("format", list(FORMATS), "json")]  # noqa: A001
        wrong = format.problems(schema)
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return cls(
            url=url,
            method=given.choice("method", METHODS, "POST"),
            format=format,
            headers=headers,
            rows_max=given.count("batchRows", 1000),
            bytes_max=given.count("batchBytes", 1024 * 1024),
            timeout_s=given.seconds("timeoutS", 30),
            retries=parse_retry_policy(given),
            dead_letter_topic=str(TopicName.parse(topic)) if topic else None,
            dead_letter_url=given.text("deadLetterUrl", URL_DEFAULT),
            identity=BatchIdentity.parse(given),
        )

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> SentRows:
        """
        Send *batches*, one request after the other.

        Durability: The server has accepted all rows on return; if this raises, it may
            have accepted some of them.

        Ordering: The rows of a partition arrive in order.

        Bounds: One request and one of Spark's batches are in memory.

        Raises:
            Unavailable: The server cannot be reached, or was busy at every attempt.
            InvalidRequest: The server rejects the rows.
        """
        chunks = self.format.chunks(batches, self.rows_max, self.bytes_max)
        requests = Requests(timeout_s=self.timeout_s, retries=self.retries)
        with closing(requests):
            task = _Task(self, key, requests)
            for number, chunk in enumerate(chunks):
                task.send(number, chunk)
        return SentRows(task.row_count, task.dead_letter_count)

    def commit(self, key: BatchKey, outputs: Sequence[SentRows]) -> None:
        dead = sum(each.dead_letter_count for each in outputs)
        if dead:
            log.warning(
                "batch %s: of %d rows %d are dead letters in %s",
                key,
                sum(each.row_count for each in outputs),
                dead,
                self.dead_letter_topic,
            )

    def abort(self, key: BatchKey, outputs: Sequence[SentRows]) -> None:
        count = sum(each.row_count for each in outputs)
        log.warning("batch %s is aborted, but %d of its rows are sent", key, count)


@dataclass(slots=True)
class _Task:
    """The requests of one task."""

    sink: HttpSink
    key: TaskKey
    requests: Requests
    row_count: int = 0
    dead_letter_count: int = 0

    def send(self, number: int, chunk: pa.Table) -> None:
        """Send *chunk* as request *number*, divided if the server rejects rows."""
        sink = self.sink
        body = sink.format.body(chunk)
        idempotency = idempotency_key(self.key, number, body)
        response = self.requests.send(
            sink.method,
            sink.url,
            headers={
                "content-type": sink.format.content_type,
                **sink.headers,
                "idempotency-key": idempotency,
            },
            content=body,
        )
        if response.is_success:
            self.row_count += chunk.num_rows
            return
        is_about_rows = response.is_client_error and (
            response.status_code not in ADDRESS_STATUSES
        )
        if not is_about_rows or sink.dead_letter_topic is None:
            where = f"{sink.method} {secrets.url_origin(sink.url)}"
            raise InvalidRequest(self._redacted(f"{where}: {summarize(response)}"))
        if chunk.num_rows == 1:
            self._dead_letter(chunk, response, idempotency)
            return
        # A single row may be the cause; halving finds it.
        half = chunk.num_rows // 2
        self.send(number, chunk.slice(0, half))
        self.send(number, chunk.slice(half))

    def _dead_letter(self, chunk: pa.Table, response: Any, idempotency: str) -> None:
        topic = self.sink.dead_letter_topic
        assert topic is not None
        attributes = {
            "reason": self._redacted(summarize(response)),
            "status": str(response.status_code),
            "url": secrets.url_origin(self.sink.url),
            "idempotency_key": idempotency,
        }
        batch = pa.record_batch(
            {
                "payload": self.sink.format.rows(chunk),
                "attributes": pa.array(
                    [list(attributes.items())], pa.map_(pa.string(), pa.string())
                ),
            }
        )
        client = process_client(self.sink.dead_letter_url)
        with client.producer(topic, reliable=True) as producer:
            producer.send_batch(batch)
        self.row_count += 1
        self.dead_letter_count += 1

    def _redacted(self, text: str) -> str:
        """Return *text* without the values of headers, which some servers echo."""
        values = [v for v in self.sink.headers.values() if len(v) > 3]
        return secrets.redact(text, [*values, *secrets.in_url(self.sink.url)])
