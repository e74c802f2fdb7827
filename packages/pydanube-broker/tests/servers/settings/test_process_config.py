"""The settings of the processes of a broker."""

from pathlib import Path

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.servers.settings.config import (
    BrokerConfig,
    ProcessesConfig,
    load_config,
)
from pydanube_broker.servers.settings.listener_config import ListenerConfig
from pydanube_broker.servers.settings.process_config import (
    OwnPorts,
    config_of_process,
    own_listens,
    process_count,
    reached_config,
    usable_cores,
)
from pydanube_broker.storage.config import FILES, GIB

PORTS = OwnPorts(stream=7001, grpc=7002, admin=7003, http=7004, listeners={})


def config_of(**flags):
    return load_config(None, {}, {"data_dir": "/data", **flags})


def test_processes_share_metadata_journals_and_segments():
    config = config_of(**{"processes.count": 3})
    first, second = (config_of_process(config, number) for number in (1, 2))
    assert first.data_dir == Path("/data/processes/1")
    assert second.data_dir == Path("/data/processes/2")
    assert first.cluster.broker_id != second.cluster.broker_id
    assert first.storage == second.storage
    assert first.storage.journal.kind == FILES
    assert first.storage.remote.url == "file:///data/objects"
    assert first.metadata.path == second.metadata.path == "/data/metadata.sqlite"
    assert first.is_in_cluster
    assert not config.is_in_cluster


def test_remote_object_store_of_the_settings_is_that_of_all_processes():
    config = config_of(**{"processes.count": 2, "storage.remote.url": "s3://bucket/x"})
    assert config_of_process(config, 1).storage.remote.url == "s3://bucket/x"


def test_segments_are_kept_twice_on_a_disk_for_a_short_time_only():
    remote = config_of_process(config_of(), 1).storage.remote
    assert remote.local_bytes_max == GIB
    assert remote.read_cache_bytes_max == 0
    fewer = config_of(**{"storage.remote.local_bytes_max": 1000})
    assert config_of_process(fewer, 1).storage.remote.local_bytes_max == 1000


def test_messages_that_wait_for_a_full_disk_fit_into_the_reserve():
    config = config_of(**{"storage.reserve_bytes": 1000})
    assert config_of_process(config, 1).storage.journal.pending_bytes_max == 500
    without = config_of(**{"storage.reserve_bytes": 0})
    before = without.storage.journal.pending_bytes_max
    assert config_of_process(without, 1).storage.journal.pending_bytes_max == before


def test_processes_divide_the_memory_of_the_broker():
    config = config_of(**{"processes.count": 4})
    part = config_of_process(config, 1)
    whole, own = config.storage, part.storage
    assert own.tail_bytes_max == whole.tail_bytes_max // 4
    assert own.cache_bytes_max == whole.cache_bytes_max // 4
    assert part.listen.receive_bytes_max == config.listen.receive_bytes_max // 4
    assert own_listens(part, PORTS).receive_bytes_max == part.listen.receive_bytes_max


def test_part_of_the_memory_has_room_for_the_longest_frame():
    config = config_of(**{"processes.count": 256, "storage.tail_bytes_max": 100})
    part = config_of_process(config, 1)
    assert part.listen.receive_bytes_max == config.listen.frame_bytes_max
    assert part.storage.tail_bytes_max == 1


def test_number_of_processes_is_one_less_than_the_cores():
    config = load_config(None, {"DANUBE_PROCESSES__COUNT": "auto"}, {})
    assert process_count(config) == max(1, usable_cores() - 1)
    assert process_count(config_of(**{"processes.count": 5})) == 5
    assert process_count(config_of()) == 1


def test_clients_find_a_process_at_its_own_ports():
    own = own_listens(config_of(), PORTS)
    assert (own.stream_port, own.grpc_port) == (7001, 7002)
    assert (own.admin_port, own.http_port) == (7003, 7004)
    assert own.advertised_url == ""


def test_advertised_url_of_a_process_has_its_port():
    config = config_of(**{"listen.advertised_url": "http://broker.example:6650"})
    assert own_listens(config, PORTS).advertised_url == "http://broker.example:7002"


def test_native_clients_are_told_the_port_of_a_process():
    config = config_of(**{"cluster.advertised_url": "danube://broker.example:6650"})
    reached = reached_config(config, own_listens(config, PORTS))
    assert reached.cluster.advertised_url == "danube://broker.example:7001"
    assert reached.listen.stream_port == 7001
    without = config_of()
    reached = reached_config(without, own_listens(without, PORTS))
    assert reached.cluster.advertised_url == ""


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"processes.count": 0}, "processes.count"),
        ({"processes.count": "many"}, "processes.count"),
        ({"storage.journal.kind": "redis"}, "storage.journal.kind is redis"),
        (
            {"metadata.kind": "etcd", "metadata.etcd.endpoints": "localhost:2379"},
            "metadata.kind is etcd",
        ),
        # The store of a plug-in.
        (
            {
                "metadata.kind": "zookeeper",
                "metadata.zookeeper.endpoints": "localhost:2181",
            },
            "metadata.kind is zookeeper",
        ),
    ],
)
def test_settings_that_need_one_process_are_refused(flags, reason):
    redis = {"storage.journal.redis.url": "redis://localhost:6379/x"}
    remote = {"storage.remote.url": "fs:///remote"}
    with pytest.raises(InvalidConfig, match=reason):
        config_of(**{"processes.count": 2, **redis, **remote, **flags})


class FtpConfig(ListenerConfig, frozen=True, kw_only=True):
    """The settings of a listener that knows nothing of other processes."""

    NAME = "ftp"
    TITLE = "FTP"


class ConfigWithFtp(BrokerConfig, frozen=True, kw_only=True):
    """The settings of a broker with the plug-in."""

    ftp: FtpConfig = FtpConfig()


def test_listener_that_does_not_find_topics_of_other_processes_is_refused():
    several = ProcessesConfig(count=3)
    with pytest.raises(
        InvalidConfig,
        match=r"^ftp\.port: expected nothing, because processes\.count is 3: a broker "
        r"with a listener for FTP has one process, got 2121$",
    ):
        ConfigWithFtp(processes=several, ftp=FtpConfig(port=2121))
    # It is installed and has no port, or there is one process.
    ConfigWithFtp(processes=several)
    ConfigWithFtp(ftp=FtpConfig(port=2121))


@pytest.mark.parametrize("claim", ["SERVES_PROCESSES", "SERVES_CLUSTERS"])
def test_listener_that_finds_topics_of_other_processes_is_opened(claim, monkeypatch):
    monkeypatch.setattr(FtpConfig, claim, True)
    ConfigWithFtp(processes=ProcessesConfig(count=3), ftp=FtpConfig(port=2121))


@pytest.mark.parametrize(
    ("given", "said"),
    [("many", "expected a number or auto, got 'many'"), ("0", "expected int >= 1")],
)
def test_number_of_processes_that_is_none_is_refused(given, said):
    with pytest.raises(InvalidConfig, match=said):
        load_config(None, {"DANUBE_PROCESSES__COUNT": given}, {})
