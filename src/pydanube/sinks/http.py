"""
The sink ``danube-http``: rows to a web server, many in one request.

A server that deduplicates by the header ``Idempotency-Key`` processes each request
once, however often Spark repeats the task.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pydanube.model.errors import BrokerError, InvalidConfig, InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.retry import RetryPolicy
from pydanube.reader.catalog import process_client
from pydanube.reader.option_parsing import Option
from pydanube.reader.read_options import URL_DEFAULT
from pydanube.sinks import secrets
from pydanube.sinks.http_bodies import Format, format_named, idempotency_key
from pydanube.sinks.requests import Requests, summarize
from pydanube.sinks.retrying import parse_retry_policy
from pydanube.spark.dataframe_columns import arrow_schema
from pydanube.spark.sink import BatchIdentity
from pydanube.spark.sink_data_source import SinkDataSource
from pydanube.spark.sink_options import (
    APP_ID,
    BATCH_ID,
    RETRIES,
    RETRY_INTERVAL,
    parse_sink_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from pydanube.spark.sink import BatchKey, TaskKey
    from pydanube.sync import Client

log = logging.getLogger(__name__)

METHODS = ("POST", "PUT", "PATCH")
FORMATS = ("json", "ndjson", "arrow")

OPTIONS = (
    Option("url", "", "The URL of the requests.", is_required=True),
    Option("method", "POST", "`POST`, `PUT` or `PATCH`."),
    Option(
        "format",
        "json",
        "The body of a request: `json`, an array of objects; `ndjson`, one object per "
        "line; `arrow`, an Arrow stream.",
    ),
    Option(
        "header.*",
        "",
        "A header, such as `header.Authorization`. Its value is never shown.",
    ),
    Option("batchRows", "1000", "The maximum number of rows in a request."),
    Option(
        "batchBytes",
        "1048576",
        "The maximum size of a request in bytes; a larger row is sent alone.",
    ),
    Option("timeoutS", "30", "The timeout of a request in seconds."),
    RETRIES,
    RETRY_INTERVAL,
    Option(
        "deadLetterTopic",
        "",
        "The topic for rows that the server rejects; without it the query fails.",
    ),
    Option("deadLetterUrl", URL_DEFAULT, "The broker of that topic."),
    APP_ID,
    BATCH_ID,
)

ADDRESS_STATUSES = frozenset({401, 403, 404, 405, 407})
"""Statuses that concern the credentials or the URL: all rows would be rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """The options of a sink."""

    url: str = field(repr=False)
    method: str
    format: str
    headers: Mapping[str, str] = field(repr=False)
    rows_max: int
    bytes_max: int
    timeout_s: float
    retries: RetryPolicy
    dead_letter_topic: str | None
    dead_letter_url: str
    identity: BatchIdentity

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> HttpOptions:
        """
        Parse *options*.

        Raises:
            InvalidConfig: An option is unknown, malformed or contradicts another.
            InvalidName: The name of the dead-letter topic is invalid.
        """
        given = parse_sink_options(options, OPTIONS)
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
        return cls(
            url=url,
            method=given.choice("method", METHODS, "POST"),
            format=given.choice("format", FORMATS, "json"),
            headers=headers,
            rows_max=given.count("batchRows", 1000),
            bytes_max=given.count("batchBytes", 1024 * 1024),
            timeout_s=given.seconds("timeoutS", 30),
            retries=parse_retry_policy(given),
            dead_letter_topic=str(TopicName.parse(topic)) if topic else None,
            dead_letter_url=given.text("deadLetterUrl", URL_DEFAULT),
            identity=BatchIdentity.parse(given),
        )


class HttpDataSource(SinkDataSource):
    """``format("danube-http")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-http"

    def sink(self, schema: StructType) -> tuple[HttpSink, BatchIdentity]:
        options = HttpOptions.parse(dict(self.options))
        wrong = format_named(options.format).problems(arrow_schema(schema))
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return HttpSink(options), options.identity


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    try:
        wanted = HttpOptions.parse(options)
        found = format_named(wanted.format).problems(arrow_schema(schema))
        with Requests(
            timeout_s=wanted.timeout_s, retries=RetryPolicy(0, 0, retries_max=0)
        ) as requests:
            # Only a request with rows could tell whether the server accepts rows.
            requests.send(
                "OPTIONS",
                wanted.url,
                headers=wanted.headers,
                is_retryable=lambda _: False,
            )
        if wanted.dead_letter_topic is not None:
            process_client(wanted.dead_letter_url).describe_broker()
    except BrokerError as error:
        return [str(error)]
    return found


@dataclass(frozen=True, slots=True)
class SentRows:
    """The result of one task."""

    row_count: int
    dead_letter_count: int


class HttpSink:
    """Sends batches to a server."""

    def __init__(
        self,
        options: HttpOptions,
        wait: Callable[[float], None] = time.sleep,
        connect: Callable[[str], Client] = process_client,
    ) -> None:
        self._options = options
        self._wait = wait
        self._connect = connect

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
        options = self._options
        format = format_named(options.format)  # noqa: A001
        with Requests(
            timeout_s=options.timeout_s, retries=options.retries, wait=self._wait
        ) as requests:
            task = _Task(options, key, format, requests, self._connect)
            for number, chunk in enumerate(
                format.chunks(batches, options.rows_max, options.bytes_max)
            ):
                task.send(number, chunk)
        return SentRows(task.row_count, task.dead_letter_count)

    def commit(self, key: BatchKey, outputs: Sequence[SentRows]) -> None:
        dead = sum(each.dead_letter_count for each in outputs)
        if dead:
            count = sum(each.row_count for each in outputs)
            topic = self._options.dead_letter_topic
            log.warning(
                "batch %s: of %d rows %d are dead letters in %s",
                key,
                count,
                dead,
                topic,
            )

    def abort(self, key: BatchKey, outputs: Sequence[SentRows]) -> None:
        count = sum(each.row_count for each in outputs)
        log.warning("batch %s is aborted, but %d of its rows are sent", key, count)


class _Task:
    """The requests of one task."""

    def __init__(
        self,
        options: HttpOptions,
        key: TaskKey,
        format: Format,  # noqa: A002
        requests: Requests,
        connect: Callable[[str], Client],
    ) -> None:
        self.row_count = 0
        self.dead_letter_count = 0
        self._options = options
        self._key = key
        self._format = format
        self._requests = requests
        self._connect = connect

    def send(self, number: int, chunk: pa.Table) -> None:
        """Send *chunk* as request *number*, divided if the server rejects rows."""
        body = self._format.body(chunk)
        idempotency = idempotency_key(self._key, number, body)
        response = self._requests.send(
            self._options.method,
            self._options.url,
            headers={
                "content-type": self._format.content_type,
                **self._options.headers,
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
        if not is_about_rows or self._options.dead_letter_topic is None:
            where = f"{self._options.method} {secrets.url_origin(self._options.url)}"
            raise InvalidRequest(self._redacted(f"{where}: {summarize(response)}"))
        if chunk.num_rows == 1:
            self._dead_letter(chunk, response, idempotency)
            return
        # A single row may be the cause; halving finds it.
        half = chunk.num_rows // 2
        self.send(number, chunk.slice(0, half))
        self.send(number, chunk.slice(half))

    def _dead_letter(self, chunk: pa.Table, response: Any, idempotency: str) -> None:
        topic = self._options.dead_letter_topic
        assert topic is not None
        attributes = {
            "reason": self._redacted(summarize(response)),
            "status": str(response.status_code),
            "url": secrets.url_origin(self._options.url),
            "idempotency_key": idempotency,
        }
        batch = pa.record_batch(
            {
                "payload": self._format.rows(chunk),
                "attributes": pa.array(
                    [list(attributes.items())], pa.map_(pa.string(), pa.string())
                ),
            }
        )
        client = self._connect(self._options.dead_letter_url)
        with client.producer(topic, reliable=True) as producer:
            producer.send_batch(batch)
        self.row_count += 1
        self.dead_letter_count += 1

    def _redacted(self, text: str) -> str:
        """Return *text* without the values of headers, which some servers echo."""
        values = [v for v in self._options.headers.values() if len(v) > 3]
        return secrets.redact(text, [*values, *secrets.in_url(self._options.url)])
