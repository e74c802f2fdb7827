import socket

import msgspec
import pytest

from pydanube.model.errors import ClusterInUse, InvalidConfig
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.etcd.config import EtcdConfig
from pydanube_broker.metadata.records import ActiveBrokerRecord, JournalRecord
from pydanube_broker.servers.membership import open_membership, session_record_of
from pydanube_broker.servers.settings.config import (
    BrokerConfig,
    ClusterConfig,
    ListenConfig,
    config_type,
)
from pydanube_broker.storage.config import JournalConfig, RemoteConfig, StorageConfig
from support.fakes.memory_store import MemoryStore

METADATA = type(config_type()().metadata)
CONFIG = BrokerConfig(
    metadata=METADATA(kind="etcd", etcd=EtcdConfig(endpoints="http://e:2379")),
    storage=StorageConfig(
        remote=RemoteConfig(url="s3://bucket"), journal=JournalConfig(kind="object")
    ),
    cluster=ClusterConfig(enabled=True, broker_id="a", shards=3),
)


@pytest.fixture
def store():
    return MemoryStore()


async def test_the_first_broker_creates_the_shards(store):
    async with open_membership(CONFIG, store) as session:
        assert [path for path, _ in await store.scan(keys.SHARDS)] == [
            "/shards/0",
            "/shards/1",
            "/shards/2",
        ]
        stored = await store.get(keys.SESSIONS.key(session.session_id))
        assert stored.value.broker_id == "a"
    assert await store.scan(keys.SESSIONS) == []


async def test_more_shards_are_created_later(store):
    async with open_membership(CONFIG, store):
        pass
    more = msgspec.structs.replace(CONFIG.cluster, shards=5)
    async with open_membership(msgspec.structs.replace(CONFIG, cluster=more), store):
        assert len(await store.scan(keys.SHARDS)) == 5


async def test_a_store_in_use_outside_of_a_cluster_is_refused(store):
    active = ActiveBrokerRecord(
        session_id="s", host="h", process_id=7, data_dir="/d", started_at=0
    )
    await store.put(keys.ACTIVE_BROKER, active)
    with pytest.raises(ClusterInUse, match=r"on h \(process 7\)"):
        async with open_membership(CONFIG, store):
            pass
    assert await store.scan(keys.SHARDS) == []


async def test_a_store_with_topics_outside_of_a_cluster_is_refused(store):
    await store.put(
        keys.JOURNAL, JournalRecord(file_number=1, position=1, kind="local")
    )
    with pytest.raises(InvalidConfig, match="choose another name"):
        async with open_membership(CONFIG, store):
            pass
    assert await store.scan(keys.SHARDS) == []


def addresses_of(listen, **cluster):
    config = msgspec.structs.replace(
        CONFIG,
        listen=listen,
        cluster=msgspec.structs.replace(CONFIG.cluster, **cluster),
    )
    return session_record_of(config, started_at=1).addresses


def test_addresses_are_those_that_clients_use():
    listen = ListenConfig(host="10.0.0.1", stream_port=7000, grpc_port=0)
    assert addresses_of(listen) == {
        "stream": "danube://10.0.0.1:7000",
        "peer-admin": "http://10.0.0.1:50051",
        "peer-http": "http://10.0.0.1:8080",
    }
    name = socket.gethostname()
    assert addresses_of(ListenConfig(host="0.0.0.0")) == {
        "stream": f"danube://{name}:6651",
        "grpc": f"http://{name}:6650",
        "peer-grpc": f"http://{name}:6650",
        "peer-admin": f"http://{name}:50051",
        "peer-http": f"http://{name}:8080",
    }
    listen = ListenConfig(advertised_url="http://b:1", connect_url="http://proxy:3")
    assert addresses_of(
        listen, advertised_url="danube://b:2", peer_host="b.internal"
    ) == {
        "stream": "danube://b:2",
        "grpc": "http://b:1",
        "grpc-connect": "http://proxy:3",
        # Other brokers do not use the addresses for clients.
        "peer-grpc": "http://b.internal:6650",
        "peer-admin": "http://b.internal:50051",
        "peer-http": "http://b.internal:8080",
    }


def test_a_broker_without_a_name_has_that_of_its_machine():
    cluster = msgspec.structs.replace(CONFIG.cluster, broker_id="", zone="z")
    config = msgspec.structs.replace(CONFIG, cluster=cluster)
    record = session_record_of(config, started_at=1)
    assert (record.broker_id, record.zone) == (socket.gethostname(), "z")
