"""The settings of each of the processes of a broker, which share a data directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.addresses import host_in_url
from pydanube_broker.servers.settings.config import BrokerConfig, ListenConfig
from pydanube_broker.storage.config import FILES, GIB, MIB

PROCESSES = "processes"
"""The directory with a data directory for each process."""
JOURNALS = "journals"
"""The directory with the journals of all processes."""

_ID_PREFIX = "process-"

LOCAL_BYTES_MAX = GIB
"""The size of the segments of a process that are beside the uploaded ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPorts:
    """The ports of one process, beside those that all processes share."""

    stream: int
    grpc: int
    admin: int
    http: int
    listeners: Mapping[str, int]
    """The ports of listeners of plug-ins by which clients find the topics of a process,
    by their names."""


def process_count(config: BrokerConfig) -> int:
    """Return the number of processes that the settings ask for."""
    count = config.processes.count
    return max(1, usable_cores() - 1) if count == "auto" else count


def usable_cores() -> int:
    """Return the number of cores that this program may use."""
    return len(os.sched_getaffinity(0))


def has_processes(data_dir: Path) -> bool:
    """Return whether several processes have used a data directory."""
    return (data_dir / PROCESSES).is_dir()


def process_id(number: int) -> str:
    """Return the id of a process in the metadata."""
    return f"{_ID_PREFIX}{number}"


def process_number(broker_id: str) -> int:
    """Return the number of the process with this id in the metadata."""
    return int(broker_id.removeprefix(_ID_PREFIX))


def config_of_process(config: BrokerConfig, number: int) -> BrokerConfig:
    """
    Return the settings of the process *number*, which begins with 1.

    Each process has a data directory of its own for what it alone uses.  All have the
    metadata, the directory of the journals, and, if there is no remote object store,
    the directory of the uploaded segments in common.  Each has an equal part of the
    memory that the settings allow the broker.
    """
    count = process_count(config)
    data_dir = config.data_dir.absolute()
    replace = msgspec.structs.replace
    storage = config.storage
    remote = storage.remote
    if not remote.url:
        # On the same disk, copies of uploaded segments are of little use.
        remote = replace(
            remote,
            url=(data_dir / "objects").as_uri(),
            local_bytes_max=min(remote.local_bytes_max, LOCAL_BYTES_MAX),
            read_cache_bytes_max=0,
        )
    journal = replace(
        storage.journal, kind=FILES, options={"path": str(data_dir / JOURNALS)}
    )
    if storage.reserve_bytes:
        # When the disk is full, what waits for it must fit into the reserve.
        bytes_max = max(1, storage.reserve_bytes // 2)
        journal = replace(
            journal, pending_bytes_max=min(journal.pending_bytes_max, bytes_max)
        )
    storage = replace(
        storage,
        remote=remote,
        journal=journal,
        tail_bytes_max=max(1, storage.tail_bytes_max // count),
        cache_bytes_max=storage.cache_bytes_max // count,
    )
    listen = config.listen
    # A frame of any allowed length has to fit.
    receive_bytes_max = max(
        listen.receive_bytes_max // count, listen.frame_bytes_max, MIB
    )
    metadata = config.metadata
    path = metadata.path or str(data_dir / "metadata.sqlite")
    return replace(
        config,
        data_dir=data_dir / PROCESSES / str(number),
        metadata=replace(metadata, path=path),
        storage=storage,
        listen=replace(listen, receive_bytes_max=receive_bytes_max),
        cluster=replace(config.cluster, broker_id=process_id(number)),
    )


def own_listens(config: BrokerConfig, ports: OwnPorts) -> ListenConfig:
    """Return the listeners of a process at which clients find its topics."""
    listens = config.listen
    return msgspec.structs.replace(
        listens,
        stream_port=ports.stream,
        grpc_port=ports.grpc,
        admin_port=ports.admin,
        http_port=ports.http,
        advertised_url=_at_port(listens.advertised_url, ports.grpc),
    )


def reached_config(config: BrokerConfig, own: ListenConfig) -> BrokerConfig:
    """
    Return the settings of a process with its own listeners.

    Clients are told the host of ``cluster.advertised_url``, and its own port.
    """
    url = _at_port(config.cluster.advertised_url, own.stream_port)
    cluster = msgspec.structs.replace(config.cluster, advertised_url=url)
    return msgspec.structs.replace(config, listen=own, cluster=cluster)


def _at_port(advertised: str, port: int) -> str:
    """Return the URL of another port of the same host; empty if there is none."""
    if not advertised:
        return ""
    url = urlsplit(advertised)
    return f"{url.scheme}://{host_in_url(url.hostname or '')}:{port}"
