"""
The options of a read, declared, parsed and checked.

``OPTIONS`` declares all names; the table in ``docs/guide/spark.md`` is generated from
it.  Options that Spark's Kafka source also has have the same names.  Parsing returns
consistent options or raises an error that names the option.  Pure.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.names import TopicName, parse_subscription
from pydanube.model.url_options import UrlOptions, with_url_options
from pydanube_spark.reader.pure.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    parse_bound,
    parse_json,
    parse_number,
    split_name,
)
from pydanube_spark.reader.pure.option_parsing import (
    Option,
    ParsedOptions,
    parse_options,
)

URL_DEFAULT = "danube://127.0.0.1:6651"
URL = Option(
    "url",
    URL_DEFAULT,
    "The broker, or several of a cluster with commas between them.",
    instead_of=("danube.url", "kafka.bootstrap.servers", "bootstrap.servers"),
)

CONNECTION = (
    Option(
        "auth.allowPlaintextCredentials",
        "",
        "`true`: send the API key or the token to a broker on another machine without "
        "TLS, in a network that you trust.",
    ),
    Option(
        "auth.apiKeyFile",
        "",
        "The file with the API key of this client; by default the variable "
        "`DANUBE_API_KEY` of the driver and of every executor. Files have the same "
        "path on all of them.",
    ),
    Option(
        "auth.tokenFile",
        "",
        "The file with the token of this client, which is read for each connection; by "
        "default the variable `DANUBE_TOKEN`.",
    ),
    Option(
        "tls.caFile",
        "",
        "For a URL that begins with `danubes://`: the PEM file with the certificates "
        "of the authorities to trust; by default those of the operating system. All "
        "files of TLS have the same path on the driver and on every executor.",
    ),
    Option(
        "tls.certificateFile",
        "",
        "The PEM file with the certificate of this client, if the broker asks for one.",
    ),
    Option("tls.keyFile", "", "The PEM file with the key of that certificate."),
    Option(
        "tls.serverName",
        "",
        "The name in the certificate of the broker, if it is not the host of the URL.",
    ),
)

FROM_EARLIEST = Bound(option="startingOffsets", value=EARLIEST)
TO_LATEST = Bound(option="endingOffsets", value=LATEST)

BROKER_RETRY_S = 120
"""
The time for which queries wait for a broker that cannot be reached.

One failure would end a streaming query, and a broker may be restarting.
"""
RETRY_INTERVAL_MS = 500
RETRIES = BROKER_RETRY_S * 1000 // RETRY_INTERVAL_MS

OPTIONS = (
    URL,
    *CONNECTION,
    Option(
        "subscribe",
        "",
        "The topics to read, separated by commas. The name of a partitioned topic "
        "includes all its partitions, also those that are added later.",
    ),
    Option(
        "subscribePattern",
        "",
        "A regular expression that must match whole topic names. A stream also finds "
        "topics that are created later, and reads them from their first message.",
    ),
    Option(
        "assign",
        "",
        'The partitions to read, such as `{"/default/orders": [0, 2]}`. Set exactly '
        "one of `subscribe`, `subscribePattern` and `assign`.",
    ),
    Option(
        "filter.partitions",
        "all",
        "The partition numbers to read of every topic, such as `0,2`. A topic without "
        "partitions is partition 0.",
    ),
    Option(
        "startingOffsets",
        "earliest (batch), latest (stream)",
        '`earliest`, `latest`, or JSON such as `{"/default/plain": 23, '
        '"/default/orders": {"0": 23, "1": -2}}` with an offset for every topic, or '
        "for each of its partitions, where -2 is earliest and -1 is latest. A stream "
        "with a checkpoint continues from the checkpoint instead.",
    ),
    Option(
        "startingTimestamp",
        "",
        "Start with the first message that was published at this time or later: "
        "milliseconds since 1970, or a time with its time zone such as "
        "`2026-01-31T12:00:00Z`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        "Such a time for every topic or partition, in milliseconds: "
        '`{"/default/orders": {"0": 1700000000000, "1": 1700000000000}}`. Set only one '
        "of the three options.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What to do if a topic has no message from that time or later: fail with "
        "`error`, or start at its end with `latest`.",
    ),
    Option(
        "endingOffsets",
        "latest",
        "Where to stop, in the format of `startingOffsets`; the message at that offset "
        "is not read.",
        "batch",
    ),
    Option(
        "endingTimestamp",
        "",
        "Stop before the first message that was published at this time or later, or at "
        "the end if there is none.",
        "batch",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "",
        "Such a time for every topic or partition, in milliseconds.",
        "batch",
    ),
    Option(
        "columns",
        "all but `attributes`, `deliver_at` and `expires_at`",
        "The columns to read, such as `offset,payload`. `schema(…)` does the same and "
        "also sets their types.",
    ),
    Option(
        "pushFilters",
        "false",
        "Evaluate conditions on `topic`, `partition`, `offset`, `publish_time` and "
        "`key` in the source, so that it reads less. Only for a DataFrame that is read "
        "once, with one set of conditions: see [Conditions](#conditions).",
        "batch",
    ),
    Option(
        "includeAttributes",
        "false",
        "Whether the default columns include `attributes`: a map is the most expensive "
        "column.",
    ),
    Option(
        "tail",
        "broker",
        "`none` reads only segments, so that the broker does not serve messages. The "
        "newest messages are then read after they are sealed.",
    ),
    Option(
        "readThrough",
        "auto",
        "Whether messages of segments come through the broker. `never` reads the files "
        "directly, and fails without access to them; `always` reads everything through "
        "the broker; `auto` reads directly, and through the broker where the executor "
        "has no access. See [Access to segments](#access-to-segments).",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "no limit",
        "The most messages of a micro-batch, divided among the topics in proportion to "
        "what each has waiting.",
        "stream",
    ),
    Option(
        "maxBytesPerTrigger",
        "no limit",
        "Approximately the most bytes of a micro-batch, such as `64m`, counted as they "
        "are stored: compressed in segments. If both limits are set, both apply.",
        "stream",
    ),
    Option(
        "minOffsetsPerTrigger",
        "none",
        "Wait until this many messages are available, or `maxTriggerDelay` has passed. "
        "The triggers `availableNow` and `once` do not wait.",
        "stream",
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        "The longest time after the last micro-batch to wait for "
        "`minOffsetsPerTrigger`, such as `500ms`, `30s`, `15m`, `2h`.",
        "stream",
    ),
    Option(
        "minPartitions",
        "the session's parallelism (batch), 1 (stream)",
        "The least number of Spark partitions, if there are as many messages. By "
        "default a batch has no more partitions than are worth a task: each has 8 MiB "
        "or more, counted as for `maxBytesPerPartition`.",
    ),
    Option(
        "maxRecordsPerPartition",
        "no limit",
        "The most messages of one Spark partition.",
    ),
    Option(
        "maxBytesPerPartition",
        "33554432",
        "The most bytes of compressed segments in one Spark partition, such as `64m`: "
        "larger ranges are split, and smaller neighbouring segments are merged. A "
        "message counts as 64 bytes or more, because messages that compress well also "
        "take time: by default that is half a million messages.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "Fail if messages are gone that were not read yet. `false` continues with the "
        "first message that is left, and logs which messages are missing.",
    ),
    Option(
        "subscription",
        "",
        "Report progress to the broker under this name, so that its tools show the "
        "lag of the query. Only Spark's checkpoint decides what is read.",
        "stream",
    ),
    Option(
        "groupIdPrefix",
        "",
        "Instead of `subscription`: the prefix of a name that ends with a hash of the "
        "topics that the query reads.",
        "stream",
    ),
    Option(
        "decode",
        "false",
        "Add the column `value`, decoded with the subject of the topics. With `json` "
        "it is JSON text, and the topics may have different subjects.",
    ),
    Option(
        "schemaVersion",
        "latest",
        "The reader schema: the version of the subject whose columns `value` has. "
        "`latest` is the latest version when the query is planned. A stream without "
        "this option keeps the version in its checkpoint.",
    ),
    Option(
        "onNewVersion",
        "convert",
        "What to do with a message whose schema version is newer than that of `value` "
        "and has other columns: `convert` drops the fields that `value` does not have; "
        "`fail` ends the query, which has them when it is started again, also in a "
        "stream.",
    ),
    Option(
        "onUndecodable",
        "fail",
        "What to do if a message cannot be decoded: `fail` ends the query with an "
        "error that names the message; with `null` its `value` is null, and the column "
        "`_error` has the reason.",
    ),
    Option(
        "fetchOffset.numRetries",
        str(RETRIES),
        "How often a request is retried while the broker cannot be reached. The "
        "default lasts for two minutes, as that of the sink does.",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        str(RETRY_INTERVAL_MS),
        "The delay before each retry.",
    ),
)


class Mode(Enum):
    """How a topic is read."""

    BATCH = "batch"
    STREAM = "stream"


class OnUndecodable(Enum):
    """How a read treats messages that cannot be decoded."""

    FAIL = "fail"
    NULL = "null"


class ReadThrough(Enum):
    """Whether messages of segments are read through the broker."""

    AUTO = "auto"
    """Only where a task cannot read the files."""
    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How values are decoded."""

    version: int | None = None
    """The version of the reader schema; None: the latest."""
    is_version_given: bool = False
    """True if the user set ``schemaVersion``, even to the latest."""
    fails_on_new: bool = False
    """
    Whether a newer version with other columns than the reader schema ends the query.

    Then a stream always has the version of its columns, not that of its checkpoint.
    """
    on_undecodable: OnUndecodable = OnUndecodable.FAIL
    as_json: bool = False
    """True if values are JSON text, each as its own schema says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The parsed options of a read."""

    url: str = URL_DEFAULT
    topics: tuple[str, ...] = ()
    """Topics, partitions or names of partitioned topics, sorted."""
    pattern: str | None = None
    """A regular expression, instead of *topics*."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The partitions to read of each topic, instead of both."""
    partitions: frozenset[int] | None = None
    """The partition numbers to read; None: all."""
    starting: Bound = FROM_EARLIEST
    ending: Bound = TO_LATEST
    has_tail: bool = True
    """True if the tail is read, too."""
    read_through: ReadThrough = ReadThrough.AUTO
    columns: tuple[str, ...] | None = None
    """None: the default columns."""
    has_attributes: bool = False
    pushes_filters: bool = False
    trigger_rows_max: int | None = None
    trigger_bytes_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay_s: float = 900.0
    partitions_min: int | None = None
    """None: what suits the session."""
    partition_rows_max: int | None = None
    partition_bytes_max: int = 32 * 1024 * 1024
    fail_on_data_loss: bool = True
    subscription: str | None = None
    retries: int = RETRIES
    retry_interval_s: float = RETRY_INTERVAL_MS / 1000
    values: ValueOptions | None = None
    """None: values are not decoded."""

    def selects(self, topic: str) -> bool:
        """Return whether the topic or partition *topic* is read."""
        base, number = split_name(topic)
        if not self.selects_partition(number):
            return False
        if self.pattern is not None:
            names = (topic, base)
            return any(re.fullmatch(self.pattern, name) for name in names)
        if self.assigned:
            return number in self.assigned.get(base, ())
        return topic in self.topics or base in self.topics

    def selects_partition(self, number: int) -> bool:
        """Return whether ``filter.partitions`` allows partitions with this *number*."""
        return self.partitions is None or number in self.partitions


def parse_broker_url(given: ParsedOptions) -> str:
    """
    Return the URL of the broker, with the options of the connection in its query.

    Raises:
        InvalidConfig: The query of the URL is malformed.
    """
    url = given.text("url", URL_DEFAULT)
    plaintext = given.text("auth.allowPlaintextCredentials").lower() or None
    try:
        options = UrlOptions(
            ca_file=given.text("tls.caFile") or None,
            certificate_file=given.text("tls.certificateFile") or None,
            key_file=given.text("tls.keyFile") or None,
            server_name=given.text("tls.serverName") or None,
            token_file=given.text("auth.tokenFile") or None,
            api_key_file=given.text("auth.apiKeyFile") or None,
            allow_plaintext_credentials=plaintext,
        )
        return with_url_options(url, options)
    except InvalidRequest as error:
        raise InvalidConfig(f"url: {error}") from error


def parse_read_options(options: Mapping[str, str], mode: Mode | None) -> ReadOptions:
    """
    Parse *options*, whose names are in any case.

    If *mode* is None, the options of both modes are allowed.

    Raises:
        InvalidConfig: An option is unknown, malformed, not for this mode, or
            contradicts another.
        InvalidName: A topic or subscription name is malformed.
    """
    given = parse_options(options, OPTIONS, mode=None if mode is None else mode.value)
    topics, pattern, assigned = _selection(given)
    starting = _bound(given, "starting", mode)
    ending = _bound(given, "ending", mode)
    rows_max = given.count("maxOffsetsPerTrigger", None)
    rows_min = given.count("minOffsetsPerTrigger", None)
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise InvalidConfig(
            f"minOffsetsPerTrigger: {rows_min} is more than maxOffsetsPerTrigger"
        )
    if "maxTriggerDelay" in given and rows_min is None:
        raise InvalidConfig("maxTriggerDelay: only with minOffsetsPerTrigger")
    interval_ms = given.count(
        "fetchOffset.retryIntervalMs", RETRY_INTERVAL_MS, smallest=0
    )
    return ReadOptions(
        url=parse_broker_url(given),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        partitions=_partitions(given),
        starting=starting,
        ending=ending,
        has_tail=given.choice("tail", ("broker", "none"), "broker") == "broker",
        read_through=ReadThrough(
            given.choice("readThrough", [each.value for each in ReadThrough], "auto")
        ),
        columns=_columns(given),
        has_attributes=given.boolean("includeAttributes"),
        pushes_filters=given.boolean("pushFilters"),
        trigger_rows_max=rows_max,
        trigger_bytes_max=given.byte_count("maxBytesPerTrigger", None),
        trigger_rows_min=rows_min,
        trigger_delay_s=given.duration_s("maxTriggerDelay", 900.0),
        partitions_min=given.count("minPartitions", None),
        partition_rows_max=given.count("maxRecordsPerPartition", None),
        partition_bytes_max=given.byte_count("maxBytesPerPartition", 32 * 1024 * 1024),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        subscription=_subscription(given),
        retries=given.count("fetchOffset.numRetries", RETRIES, smallest=0),
        retry_interval_s=interval_ms / 1000,
        values=_values(given),
    )


def _selection(
    given: ParsedOptions,
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    if sum(name in given for name in ("subscribe", "subscribePattern", "assign")) != 1:
        raise InvalidConfig(
            "set exactly one of 'subscribe', 'subscribePattern' and 'assign'"
        )
    if "subscribe" in given:
        names = given.items("subscribe")
        if not names:
            raise InvalidConfig("subscribe: must name at least one topic")
        return tuple(sorted({str(TopicName.parse(name)) for name in names})), None, {}
    if "assign" in given:
        return (), None, _assigned(given.text("assign"))
    pattern = given.text("subscribePattern")
    try:
        # re warns about syntax whose meaning may change in later versions of Python.
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidConfig(f"subscribePattern: {error}") from error
    return (), pattern, {}


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    found = parse_json(text, "assign", "not JSON")
    assigned = {}
    for topic, numbers in sorted(found.items()):
        if not isinstance(numbers, list) or not all(
            type(each) is int and each >= 0 for each in numbers
        ):
            raise InvalidConfig(
                "assign: the JSON must list the partitions of every topic, such as "
                f'{{"/default/orders": [0, 1]}}, not {numbers!r}'
            )
        assigned[str(TopicName.parse(topic))] = tuple(sorted(set(numbers)))
    return assigned


def _partitions(given: ParsedOptions) -> frozenset[int] | None:
    if "filter.partitions" not in given:
        return None
    numbers = [parse_number(each) for each in given.items("filter.partitions")]
    found = frozenset(number for number in numbers if number is not None)
    if not numbers or None in numbers:
        raise InvalidConfig(
            "filter.partitions: must be partition numbers such as 0,2, not "
            f"{given.text('filter.partitions')!r}"
        )
    return found


def _columns(given: ParsedOptions) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    names = tuple(given.items("columns"))
    if not names or len(set(names)) < len(names):
        raise InvalidConfig(
            "columns: must be names of columns such as offset,payload, each once, "
            f"not {given.text('columns')!r}"
        )
    return names


def _subscription(given: ParsedOptions) -> str | None:
    if "groupIdPrefix" not in given:
        if "subscription" not in given:
            return None
        return parse_subscription(given.text("subscription"))
    if "subscription" in given:
        raise InvalidConfig("set only one of 'subscription' and 'groupIdPrefix'")
    # A restarted query keeps its name; queries of other topics have other names.
    names = ("subscribe", "subscribepattern", "assign", "filter.partitions")
    topics = "\n".join(f"{name}={given.text(name)}" for name in names if name in given)
    digest = hashlib.sha256(topics.encode("utf-8", "replace")).hexdigest()[:8]
    return parse_subscription(f"{given.text('groupIdPrefix')}-{digest}")


def _values(given: ParsedOptions) -> ValueOptions | None:
    decode = given.choice("decode", ("true", "false", "json"), "false")
    if decode == "false":
        for name in ("schemaVersion", "onUndecodable", "onNewVersion"):
            if name in given:
                raise InvalidConfig(f"{name}: only with decode=true")
        return None
    for name in ("schemaVersion", "onNewVersion"):
        if decode == "json" and name in given:
            raise InvalidConfig(
                f"{name}: only with decode=true; with decode=json each message has "
                "the fields of its own version"
            )
    version = given.text("schemaVersion", "latest").lower()
    policy = given.choice("onUndecodable", ("fail", "null"), "fail")
    return ValueOptions(
        version=None if version == "latest" else given.count("schemaVersion", None),
        is_version_given="schemaVersion" in given,
        fails_on_new=given.choice("onNewVersion", ("convert", "fail"), "convert")
        == "fail",
        on_undecodable=OnUndecodable(policy),
        as_json=decode == "json",
    )


def _bound(given: ParsedOptions, end: str, mode: Mode | None) -> Bound:
    """Return the bound at *end*, ``starting`` or ``ending``."""
    offsets = f"{end}Offsets"
    time, times = f"{end}Timestamp", f"{end}OffsetsByTimestamp"
    found = [name for name in (offsets, time, times) if name in given]
    if len(found) > 1:
        raise InvalidConfig(f"set only one of {' and '.join(found)}")
    option = found[0] if found else offsets
    is_start, is_batch = end == "starting", mode is Mode.BATCH
    allows_future = not is_start
    if is_start:
        strategy = "startingOffsetsByTimestampStrategy"
        allows_future = given.choice(strategy, ("error", "latest"), "error") == "latest"
        if strategy in given and option == offsets:
            raise InvalidConfig(f"{strategy}: only with {time} or {times}")
    default = "earliest" if is_start and is_batch else "latest"
    text = given.text(option, default)
    bound = parse_bound(option, text, allows_future=allows_future)
    is_empty = bound == Bound(option=offsets, value=LATEST if is_start else EARLIEST)
    if is_batch and is_empty:
        verb = "start" if is_start else "end"
        raise InvalidConfig(f"{offsets}: a batch cannot {verb} at {text.lower()}")
    return bound
