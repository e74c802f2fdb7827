"""
A broker's settings, their defaults, and how they are read.

``docs/reference/settings.md`` is generated from the strings under the fields.  Each
component gets only its own group of settings.

Command line flags override the environment, which overrides the file, which overrides
the defaults.  Unknown settings are errors, except for variables that Kubernetes or the
original Danube set for other purposes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube.model.extras import extra_hint
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.metrics import SERIES_MAX
from pydanube.model.names import parse_client_name
from pydanube.model.plugins import LISTENERS, METADATA, load_plugin, plugin_names
from pydanube.security.addresses import parse_proxies
from pydanube_broker.cluster.pure.placement import IMBALANCE_PERCENT_MAX, MOVES_MAX
from pydanube_broker.metadata.remote_config import RemoteStoreConfig
from pydanube_broker.servers.settings.listener_config import ListenerConfig
from pydanube_broker.servers.settings.security_config import SecurityConfig
from pydanube_broker.storage.config import (
    FILES,
    NamedStoreConfig,
    StagingConfig,
    StorageConfig,
)

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

ENVIRONMENT_PREFIX = "DANUBE_"

OTHER_VARIABLES = {
    "DANUBE_CONFIG": "The configuration file, if the command names none.",
    "DANUBE_URL": "The broker that the commands of a client connect to.",
    "DANUBE_API_KEY": "The API key of clients and of the command line.",
    "DANUBE_TOKEN": "The token of clients and of the command line.",
    "DANUBE_CONTEXT": "The context that commands take the broker from without the URL.",
    "DANUBE_ADMIN_ENDPOINT": "The admin interface that `danube-admin` connects to.",
    "DANUBE_ADMIN_TOKEN": "The token that `danube-admin` authenticates with.",
    "DANUBE_ADMIN_API_KEY": "The API key that `danube-admin` uses without a token.",
    "DANUBE_ADMIN_TLS": "Whether `danube-admin` connects over TLS: true or false.",
    "DANUBE_ADMIN_DOMAIN": "The name in the broker's certificate, if not the host.",
    "DANUBE_ADMIN_CA": "The file with the certificates that `danube-admin` trusts.",
    "DANUBE_ADMIN_CERT": "The file with the certificate of `danube-admin` itself.",
    "DANUBE_ADMIN_KEY": "The file with the key of that certificate.",
}
"""Variables with the prefix that are not settings of a broker."""

ORIGINAL_VARIABLES = frozenset(
    {
        "DANUBE_ADMIN_BIN",
        "DANUBE_ADMIN_LISTEN_ADDR",
        "DANUBE_ADMIN_MODE",
        "DANUBE_BROKER_ENDPOINT",
        "DANUBE_BROKER_URL",
        "DANUBE_CA_CERT",
        "DANUBE_JWT_SECRET_KEY",
        "DANUBE_MCP_CONFIG",
        "DANUBE_SERVICE_URL",
    }
)
"""Variables of the original Danube's tools and connectors; a broker ignores them."""

# Variables that Kubernetes sets for a Service with the name danube or danube-*, as
# NAME=VALUE.  The values distinguish them from mistakes, such as the variable
# DANUBE_LISTEN_STREAM_PORT=7000 with a single underscore.
_KUBERNETES = re.compile(
    r"DANUBE_(?:[A-Z0-9]+_)*"
    r"(?:SERVICE_HOST=.*"
    r"|SERVICE_PORT(?:_[A-Z0-9]+)*=[0-9]+"
    r"|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://.*"
    r"|PORT_[0-9]+_(?:TCP|UDP|SCTP)_(?:PROTO|PORT|ADDR)=.*)"
)

G = TypeVar("G", bound=msgspec.Struct)

Port = Annotated[int, Meta(ge=0, le=65_535)]

# Some clients of Danube need addresses with a scheme and a port.
_URL = re.compile(r"https?://([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]+")

_STREAM_URL = re.compile(r"danubes?://([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]+")


class ListenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's listeners and their limits."""

    host: str = "127.0.0.1"
    """The address to listen on. The default accepts connections only from this machine;
    0.0.0.0 accepts them from everywhere."""
    insecure: bool = False
    """Accept clients on other machines although they need no credentials. Without it, a
    broker that listens on another address than this machine's own, such as 0.0.0.0,
    starts only if security.enabled is true or tls.client_certificates is required.
    """
    stream_port: Port = 6651
    """The port of the native protocol; 0 chooses a free port and prints it."""
    grpc_port: Port = 6650
    """The port for clients of the original Danube; 0 chooses a free port and prints
    it."""
    admin_port: Port = 50051
    """The port for administration tools of the original Danube; 0 chooses a free port
    and prints it."""
    http_port: Port = 8080
    """The port of health, readiness, metrics and the JSON API for administrators; 0
    chooses a free port and prints it."""
    advertised_url: str = ""
    """The broker's address for clients of the original Danube, as http://HOST:PORT. By
    default the address that it listens on, or the machine's name if it listens on all
    addresses."""
    connect_url: str = ""
    """The address of a proxy to which these clients connect. They then send the
    advertised URL with each request, in the header x-danube-broker-url. By default the
    advertised URL."""
    http_hosts: str = ""
    """The names, separated by commas, under which browsers and other clients reach the
    HTTP port through DNS, such as danube.example. Requests for other names are refused,
    which protects against DNS rebinding. IP addresses, names without a dot, such as
    localhost, and the names in the settings host, advertised_url and connect_url are
    always accepted; * accepts every name."""
    trusted_proxies: str = ""
    """The addresses and networks, separated by commas, of proxies in front of the HTTP
    port, such as 127.0.0.1,10.0.0.0/8. The broker believes their headers
    X-Forwarded-For and X-Forwarded-Proto. Headers of other clients, also on this
    machine, mean nothing: with them, clients could choose the address in the audit log
    and evade the limit of failed attempts."""
    frame_bytes_max: Annotated[int, Meta(ge=64 * KIB, le=64 * MIB)] = 8 * MIB
    """The maximum length of a frame of the native protocol. Batches may be 16,448 bytes
    shorter before compression. A longer frame closes its connection."""
    connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """The maximum number of connections of each port, to all processes together. Beyond
    it, the native protocol refuses clients with quota_exceeded; the other ports close
    the connection."""
    receive_bytes_max: Annotated[int, Meta(ge=MIB)] = 256 * MIB
    """The maximum memory for partly received frames of the native protocol, over all
    connections and processes; each connection also has a buffer of 32 KiB. A frame that
    does not fit waits, and while frames wait, connections with a stalled frame are
    closed. At least frame_bytes_max, which each process may use. The same limit applies
    to the unanswered requests of each gRPC port; beyond it, the connection that uses
    most memory is closed."""
    idle_timeout_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """A connection of the native protocol is closed if its client sends nothing for
    this time. Clients get the time when they connect, send a ping after a third of it,
    and close the connection if the broker is silent for this time."""

    def __post_init__(self) -> None:
        for name in ("advertised_url", "connect_url"):
            url = getattr(self, name)
            if url and not _URL.fullmatch(url):
                raise InvalidConfig(
                    f"{name}: expected a URL with a scheme, a host and a port, such as "
                    f"http://broker.example:6650, got {url!r}"
                )
        parse_proxies(self.trusted_proxies)
        if self.receive_bytes_max < self.frame_bytes_max:
            raise InvalidConfig(
                f"receive_bytes_max: expected at least frame_bytes_max, which is "
                f"{self.frame_bytes_max}, got {self.receive_bytes_max}"
            )


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """
    Encryption of all connections to the broker with TLS 1.2 or 1.3.

    The broker reads the files again when they change.
    """

    certificate_file: str = ""
    """The file with the certificate of the broker and its intermediate certificates, in
    PEM format. With it, all ports accept only TLS; without it, none does."""
    key_file: str = ""
    """The file with the private key of that certificate, in PEM format and without a
    password."""
    client_ca_file: str = ""
    """The file with the certificates of the authorities that issue the certificates of
    clients, in PEM format."""
    client_certificates: Literal["none", "optional", "required"] = "none"
    """Whether clients present certificates: `none` asks for no certificate; `optional`
    verifies those that clients present; `required` refuses clients without one."""

    def __post_init__(self) -> None:
        for given, missing in (
            ("certificate_file", "key_file"),
            ("key_file", "certificate_file"),
            ("client_ca_file", "certificate_file"),
        ):
            if getattr(self, given) and not getattr(self, missing):
                raise InvalidConfig(
                    f"{missing}: expected a file, because {given} is "
                    f"{getattr(self, given)!r}, got nothing"
                )
        if (self.client_certificates != "none") != bool(self.client_ca_file):
            raise InvalidConfig(
                "client_ca_file: expected a file if client_certificates is optional or "
                f"required, and otherwise nothing, got {self.client_ca_file!r} with "
                f"client_certificates {self.client_certificates}"
            )

    @property
    def is_enabled(self) -> bool:
        """True if the ports of the broker accept only TLS."""
        return bool(self.certificate_file)

    @property
    def http_scheme(self) -> str:
        """The scheme of URLs of HTTP and gRPC."""
        return "https" if self.is_enabled else "http"

    @property
    def stream_scheme(self) -> str:
        """The scheme of URLs of the native protocol."""
        return "danubes" if self.is_enabled else "danube"


class MetadataConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the metadata store."""

    kind: str = "sqlite"
    """Where the metadata is: in an SQLite file, in etcd, in ZooKeeper, or where the
    plug-in of this name keeps it. A plug-in has a group of settings of its name."""
    path: str = ""
    """The SQLite file of the metadata store. Empty: metadata.sqlite in the data
    directory. With a journal that survives the loss of that directory, the file must be
    on another disk, which survives it too."""

    def __post_init__(self) -> None:
        if self.remote is None:
            kinds = ["sqlite", *plugin_names(METADATA)]
            if self.kind not in kinds:
                raise InvalidConfig(
                    f"kind: expected one of {', '.join(kinds)}, got {self.kind!r}; "
                    "another kind needs the package that adds it"
                )
            return
        if self.path:
            raise InvalidConfig(
                f"path: expected nothing, because kind is {self.kind}, got "
                f"{self.path!r}"
            )
        if not self.remote.endpoints:
            raise InvalidConfig(
                f"{self.kind}.endpoints: expected the members of "
                f"{self.remote.SERVICE}, for example {self.remote.EXAMPLE}, got nothing"
            )

    @property
    def remote(self) -> RemoteStoreConfig | None:
        """The settings of the service that the metadata is in; None: in a file."""
        section = getattr(self, self.kind, None)
        return section if isinstance(section, RemoteStoreConfig) else None

    @property
    def file(self) -> Path | None:
        """The file if it is not in the data directory, otherwise None."""
        return Path(self.path) if self.path else None


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of brokers that serve the topics of one cluster together."""

    enabled: bool = False
    """Serve the topics of metadata.etcd.cluster_name, or of
    metadata.zookeeper.cluster_name, together with other brokers. Needs metadata.kind
    etcd or zookeeper, storage.journal.kind object, and a data directory for each
    broker. A cluster cannot take over the topics of a broker without this setting. When
    etcd or ZooKeeper has not heard of a broker for session_ttl_s, others take its
    topics over."""
    broker_id: str = ""
    """The name of this broker in the cluster, which no other broker has; the same after
    a restart. By default the machine's name."""
    advertised_url: str = ""
    """The address of this broker for clients of the native protocol, as
    danube://HOST:PORT. By default the address that it listens on, or the machine's name
    if it listens on all addresses."""
    peer_host: str = ""
    """The name or address at which the other brokers reach the gRPC ports of this one,
    to forward calls. By default the address that it listens on, or the machine's name
    if it listens on all addresses."""
    ca_file: str = ""
    """The file with the certificates of the authorities that issue the certificates of
    the brokers, in PEM format. A broker needs it to forward gRPC calls to another one
    that has TLS. By default the authorities of the system."""
    shards: Annotated[int, Meta(ge=1, le=4096)] = 256
    """The number of shards, which are the units that brokers take over. Every broker
    should have the same number. It may be raised later: topics keep their shards, and
    new topics are spread over all of them."""
    zone: str = ""
    """The zone of this broker, such as a rack or a data center."""
    moves_max: Annotated[int, Meta(ge=1, le=4096)] = MOVES_MAX
    """The maximum number of shards that move to another broker at the same time, when a
    broker is drained or the load is balanced. More shards at a time take less time
    together, and each of them pauses longer. The setting of the controller counts, so
    every broker should have the same."""
    imbalance_percent_max: Annotated[int, Meta(ge=1, le=1000)] = IMBALANCE_PERCENT_MAX
    """Shards move to other brokers when the load of a broker differs from the average
    by more than this, until it differs by less than a quarter of this. The setting of
    the controller counts."""

    def __post_init__(self) -> None:
        url = self.advertised_url
        if url and not _STREAM_URL.fullmatch(url):
            raise InvalidConfig(
                "advertised_url: expected a URL with a host and a port, such as "
                f"danube://broker.example:6651, got {url!r}"
            )


class ProcessesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a broker that uses several cores of its machine."""

    count: Annotated[int, Meta(ge=1, le=256)] | Literal["auto"] = 1
    """The number of processes of the broker, which share its topics as a cluster does;
    `auto` is one less than the number of cores. A process that ends is started again,
    and meanwhile the others serve its topics. Needs metadata.kind sqlite and
    storage.journal.kind local. The number can be changed between two starts. With TLS,
    the processes call each other at the addresses of cluster.peer_host, and trust the
    authorities in cluster.ca_file."""
    first_port: Port = 0
    """The first of the ports that clients of one process connect to. They follow each
    other: the native protocol of the first process, its gRPC, the native protocol of
    the second process, and so on; with a listener for Kafka, that of each process
    follows its gRPC. Clients begin at the ports in listen, which all processes share,
    and are then directed to the process with their topic. 0 chooses free ports."""

    @property
    def are_several(self) -> bool:
        """Whether there are several processes."""
        return self.count != 1


class TopicsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of topics."""

    auto_create: bool = True
    """Create a topic that does not exist when a producer or consumer opens it."""


class SubscriptionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of each subscription."""

    done_ranges_max: Annotated[int, Meta(ge=1)] = 100_000
    """The maximum number of separate ranges of acknowledged messages above the oldest
    unacknowledged message of a cursor. At the maximum, no new messages are delivered
    until that message is acknowledged."""
    grpc_window_messages_max: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """The maximum number of unacknowledged messages of a consumer of the original
    Danube. It starts with 16, and the window grows to the number that it processes in a
    few seconds. Consumers of the native protocol set their own credit."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of lines that are written."""
    format: Literal["text", "json"] = "text"
    """Text for people, or one JSON object per line for log collectors."""


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the metrics at the HTTP port."""

    series_max: Annotated[int, Meta(ge=1, le=1_000_000)] = SERIES_MAX
    """The maximum number of series of a metric, which are usually topics. One more
    series, with the label (other), stands for the rest. 1,000 topics take about 1 MB in
    each scrape. A scrape of /metrics?topic=PATTERN has only the topics that match."""


class TracesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Traces by OpenTelemetry, with ``pip install 'pydanube[otel]'``."""

    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The part of the batches that are traced, from publishing to delivery. 0: none. A
    traced batch takes about 100 µs more."""
    endpoint: str = ""
    """The address of the collector for OTLP over HTTP, such as
    http://127.0.0.1:4318. If it is empty, the variable OTEL_EXPORTER_OTLP_ENDPOINT has
    it."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a broker."""

    data_dir: Path = Path("danube-data")
    """The directory for all data of the broker. It is created if it does not exist, and
    used by one broker at a time."""
    listen: ListenConfig = ListenConfig()
    tls: TlsConfig = TlsConfig()
    security: SecurityConfig = SecurityConfig()
    metadata: MetadataConfig = MetadataConfig()
    topics: TopicsConfig = TopicsConfig()
    subscriptions: SubscriptionsConfig = SubscriptionsConfig()
    storage: StorageConfig = StorageConfig()
    staging: StagingConfig = StagingConfig()
    stores: dict[str, NamedStoreConfig] = {}
    """Object stores by the names that commands and other requests use, such as
    ``{backups: {url: s3://bucket/danube}}``, for backups, for copies of the history and
    for repairs. Each has a ``url`` and, if necessary, ``options``, as
    ``storage.remote`` has. Requests cannot use other stores. In the environment, a JSON
    object."""
    cluster: ClusterConfig = ClusterConfig()
    processes: ProcessesConfig = ProcessesConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    traces: TracesConfig = TracesConfig()

    def __post_init__(self) -> None:
        for name in self.stores:
            try:
                parse_client_name("store", name)
            except InvalidName as error:
                raise InvalidConfig(f"stores: {error}") from error
        if self.processes.are_several:
            self._check_processes()
        if not self.cluster.enabled:
            return
        for each in self.open_listeners:
            if not each.SERVES_CLUSTERS:
                raise InvalidConfig(
                    f"{each.NAME}.port: expected nothing, because cluster.enabled is "
                    f"true: a broker with a listener for {each.TITLE} serves all its "
                    f"topics itself, got {each.port}"
                )
            if not each.port:
                raise InvalidConfig(
                    f"{each.NAME}.port: expected a port, because cluster.enabled is "
                    "true: the other brokers tell it to clients, got 0"
                )
        needs = {
            "metadata.kind": (self.metadata.kind, plugin_names(METADATA)),
            "storage.journal.kind": (self.storage.journal.kind, ["object"]),
        }
        for setting, (given, needed) in needs.items():
            if given not in needed:
                raise InvalidConfig(
                    f"cluster.enabled: expected {setting} {' or '.join(needed)}, with "
                    f"which other brokers can take over, got {given}"
                )
        if not (self.cluster.advertised_url or self.listen.stream_port):
            raise InvalidConfig(
                "cluster.advertised_url: expected the address for clients, because "
                "listen.stream_port is 0, got nothing"
            )

    def _check_processes(self) -> None:
        """Raise if the broker cannot have several processes."""
        for each in self.open_listeners:
            if not (each.SERVES_CLUSTERS or each.SERVES_PROCESSES):
                raise InvalidConfig(
                    f"{each.NAME}.port: expected nothing, because processes.count is "
                    f"{self.processes.count}: a broker with a listener for "
                    f"{each.TITLE} has one process, got {each.port}"
                )
        if self.cluster.enabled:
            raise InvalidConfig(
                "processes.count: expected 1, because cluster.enabled is true: start "
                "several brokers of the cluster on a machine instead, got "
                f"{self.processes.count}"
            )
        for setting, given, needed in (
            ("metadata.kind", self.metadata.kind, {"sqlite"}),
            ("storage.journal.kind", self.storage.journal.kind, {"local", FILES}),
        ):
            if given not in needed:
                raise InvalidConfig(
                    f"processes.count: expected 1, because {setting} is {given}: "
                    "several processes share their metadata and journals in the data "
                    f"directory, got {self.processes.count}"
                )

    @property
    def is_in_cluster(self) -> bool:
        """Whether topics are shared with other brokers, or other processes."""
        return self.cluster.enabled or self.storage.journal.kind == FILES

    @property
    def open_listeners(self) -> Sequence[ListenerConfig]:
        """The listeners of plug-ins that are open, which are those with a port."""
        sections = (getattr(self, field) for field in self.__struct_fields__)
        return [
            each
            for each in sections
            if isinstance(each, ListenerConfig) and each.port is not None
        ]


@cache
def config_type() -> type[BrokerConfig]:
    """
    Return the type of all settings, with the groups of the plug-ins.

    Raises:
        InvalidConfig: A plug-in cannot be loaded.
    """
    metadata = _with_plugins(MetadataConfig, METADATA)
    section = ("metadata", metadata, metadata())
    return _with_plugins(BrokerConfig, LISTENERS, section)


def listener_types() -> list[type[ListenerConfig]]:
    """Return the settings of the listeners that are installed."""
    return [
        field.type
        for field in msgspec.structs.fields(config_type())
        if isinstance(field.type, type) and issubclass(field.type, ListenerConfig)
    ]


def _with_plugins(base: type[G], group: str, *sections: Any) -> type[G]:
    """Return *base* with *sections* and those of the plug-ins of *group*."""
    added = [(name, load_plugin(group, name)) for name in plugin_names(group)]
    fields = [*sections, *((name, kind, kind()) for name, kind in added)]
    return cast(
        "type[G]",
        msgspec.defstruct(
            base.__name__,
            fields,
            bases=(base,),
            module=base.__module__,
            namespace={"__doc__": base.__doc__},
            frozen=True,
            kw_only=True,
        ),
    )


def load_config(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> BrokerConfig:
    """
    Read settings from the YAML file *path*, then *environ*, then *flags*.

    Args:
        path: The file; None for the one that ``DANUBE_CONFIG`` names, if any.
        environ: The environment; a nested setting has a double underscore, as in
            ``DANUBE_LISTEN__STREAM_PORT``.
        flags: Values by dotted path, as in ``{"listen.stream_port": 0}``; None
            stands for a flag that was not given.

    Raises:
        InvalidConfig: A setting is unknown, of the wrong type or out of range; the
            message contains the setting's full path.
    """
    if path is None and environ.get("DANUBE_CONFIG"):
        path = Path(environ["DANUBE_CONFIG"])
    values: dict[str, Any] = {} if path is None else _read_file(path)
    for setting, value in _from_environment(environ):
        _place(values, setting.path, value)
    for dotted, value in flags.items():
        if value is not None:
            _place(values, dotted, value)
    return _build(values, config_type(), "config")


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables with the prefix that ``load_config`` ignores, in order."""
    return [
        name
        for name in sorted(environ)
        if name in ORIGINAL_VARIABLES
        or _KUBERNETES.fullmatch(f"{name}={environ[name]}")
    ]


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of the settings that is not a group."""

    path: str
    """The path with dots, as in ``listen.stream_port``."""
    group: type[msgspec.Struct]
    field: msgspec.structs.FieldInfo

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + self.path.upper().replace(".", "__")

    @property
    def default(self) -> object:
        """The value of a setting that is not given."""
        factory = self.field.default_factory
        return self.field.default if factory is msgspec.NODEFAULT else factory()


def settings_of(
    group: type[msgspec.Struct] | None = None, path: str = ""
) -> Iterator[Setting]:
    """Yield the settings of *group*, or of a broker, then those of its groups."""
    group = group or config_type()
    fields = msgspec.structs.fields(group)
    for field in fields:
        if not _is_group(field.type):
            yield Setting(path + field.name, group, field)
    for field in fields:
        if _is_group(field.type):
            yield from settings_of(field.type, f"{path}{field.name}.")


def _read_file(path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415  # Takes 15 ms, only with a file.

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"the file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InvalidConfig(f"the file {path} is not YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidConfig(f"the file {path} must contain settings by name")
    return values


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Setting, Any]]:
    known = {setting.variable: setting for setting in settings_of()}
    ignored = {*OTHER_VARIABLES, *ignored_variables(environ)} - known.keys()
    for name in sorted(environ):
        # An empty variable is not set, as `NAME= command` and Compose files write it.
        if not environ[name] or not name.startswith(ENVIRONMENT_PREFIX):
            continue
        if name in ignored:
            continue
        if name not in known:
            raise InvalidConfig(
                f"environment: unknown variable {name!r}"
                + (
                    extra_hint(_group_of(name, known))
                    or _suggested_variable(name, [*known, *OTHER_VARIABLES])
                )
            )
        kind = known[name].field.type
        given: object = environ[name]
        if get_origin(kind) in {dict, tuple}:
            given = _decode_json(environ[name], name)
        # All values are text, so "7000" may be a number.
        yield known[name], _convert(given, kind, name, strict=False)


def _decode_json(text: str, name: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidConfig(
            f"{name}: expected JSON, such as "
            f'{{"region": "eu-west-1"}} or a list of such objects: {error}'
        ) from None


def _place(values: dict[str, Any], dotted: str, value: object) -> None:
    *groups, name = dotted.split(".")
    for group in groups:
        if values.get(group) is None:
            values[group] = {}
        if not isinstance(values[group], dict):
            # The file has a wrong value here, which _build refuses.
            return
        values = values[group]
    values[name] = value


def _build(values: object, group: type[G], path: str) -> G:
    """Return *group* from *values*, the part of the settings at *path*."""
    if values is None:
        # In YAML a group whose lines are all commented out.
        values = {}
    if not isinstance(values, dict):
        raise InvalidConfig(
            f"{path}: expected settings by name, got {type(values).__name__}"
        )
    fields = {field.name: field for field in msgspec.structs.fields(group)}
    built = {}
    for name, value in values.items():
        if name not in fields:
            raise InvalidConfig(
                f"{path}: unknown setting {str(name)!r}"
                + (extra_hint(name) or _suggestion(str(name), fields))
            )
        build = _build if _is_group(fields[name].type) else _convert
        built[name] = build(value, fields[name].type, f"{path}.{name}")
    try:
        return group(**built)
    except InvalidConfig as error:
        # The group checks itself without knowing its path.
        raise InvalidConfig(f"{path}.{error}") from error


def _convert(value: object, kind: Any, path: str, *, strict: bool = True) -> Any:
    if get_origin(kind) is dict and isinstance(value, dict):
        inner = get_args(kind)[1]
        if _is_group(inner):
            return {
                str(name): each
                if isinstance(each, inner)
                else _build(each, inner, f"{path}.{name}")
                for name, each in value.items()
            }
    try:
        return msgspec.convert(value, kind, strict=strict, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        if get_origin(kind) is Literal:
            said = f"expected one of {', '.join(map(str, get_args(kind)))}"
        else:
            said = str(error).replace("`", "").replace("Expected", "expected", 1)
            words = [
                word
                for each in get_args(kind)
                if get_origin(each) is Literal
                for word in get_args(each)
            ]
            # A number out of range has a message of its own.
            if words and "enum" in said:
                said = f"expected a number or {' or '.join(words)}, got {value!r}"
        raise InvalidConfig(f"{path}: {said}") from error


def _decode_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    raise ValueError(f"Expected `str` that names a path, got `{type(value).__name__}`")


def _suggestion(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    return f", did you mean {nearest[0]!r}?" if nearest else ""


def _group_of(name: str, known: Iterable[str]) -> str:
    """Return the group of an unknown variable, or nothing if there is this group."""
    group, separator, _ = name.partition("__")
    if not separator or any(each.startswith(f"{group}__") for each in known):
        return ""
    return group.removeprefix(ENVIRONMENT_PREFIX).lower()


def _suggested_variable(name: str, known: Iterable[str]) -> str:
    # The prefix is always the same, and the group is often missing.
    variables: dict[str, str] = {}
    for variable in known:
        whole = variable.removeprefix(ENVIRONMENT_PREFIX)
        variables |= {whole: variable, whole.rpartition("__")[2]: variable}
    given = name.removeprefix(ENVIRONMENT_PREFIX)
    nearest = get_close_matches(given, variables, n=1)
    return f", did you mean {variables[nearest[0]]!r}?" if nearest else ""


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
