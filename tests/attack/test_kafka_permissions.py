"""Each request of Kafka's protocol is refused to clients without permissions."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest

import pydanube
from pydanube_kafka.wire.apis import VERSIONS, Api, ErrorCode
from pydanube_kafka.wire.record_batches import Records, encode_batch
from support.drivers.kafka_any_requests import any_fields, default_of
from support.drivers.kafka_requests import KafkaRequests
from support.fakes.secured import bootstrap_key, secured

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NONE = ErrorCode.none
TOPIC = ErrorCode.topic_authorization_failed
TRANSACTIONAL_ID = ErrorCode.transactional_id_authorization_failed

REFUSED = {
    # Those that say who the client is, or ask for what is no resource.
    Api.API_VERSIONS: {NONE},
    Api.SASL_HANDSHAKE: {NONE},
    Api.SASL_AUTHENTICATE: {NONE},
    Api.FIND_COORDINATOR: {NONE},
    Api.DESCRIBE_CLUSTER: {NONE},
    # Members say what they read, and who may consume nothing is none.
    Api.JOIN_GROUP: {ErrorCode.group_authorization_failed},
    Api.SYNC_GROUP: {ErrorCode.unknown_member_id},
    Api.HEARTBEAT: {ErrorCode.unknown_member_id},
    Api.CONSUMER_GROUP_HEARTBEAT: {ErrorCode.group_authorization_failed},
    Api.CONSUMER_GROUP_DESCRIBE: {ErrorCode.group_id_not_found},
    Api.LEAVE_GROUP: {NONE, ErrorCode.group_authorization_failed},
    # What the client may not see does not exist.
    Api.METADATA: {TOPIC},
    Api.LIST_GROUPS: {NONE},
    Api.DESCRIBE_GROUPS: {NONE},
    Api.DELETE_GROUPS: {ErrorCode.group_id_not_found},
    # Topics.
    Api.PRODUCE: {TOPIC},
    Api.FETCH: {NONE, TOPIC},
    Api.LIST_OFFSETS: {TOPIC},
    Api.OFFSET_FOR_LEADER_EPOCH: {TOPIC},
    Api.OFFSET_COMMIT: {TOPIC},
    Api.OFFSET_FETCH: {NONE, TOPIC},
    Api.OFFSET_DELETE: {NONE, TOPIC},
    Api.CREATE_TOPICS: {TOPIC},
    Api.CREATE_PARTITIONS: {TOPIC},
    Api.DELETE_TOPICS: {TOPIC},
    Api.DELETE_RECORDS: {TOPIC},
    Api.DESCRIBE_CONFIGS: {TOPIC},
    Api.INCREMENTAL_ALTER_CONFIGS: {TOPIC},
    # Transactions.
    Api.INIT_PRODUCER_ID: {TRANSACTIONAL_ID},
    Api.ADD_PARTITIONS_TO_TXN: {TOPIC},
    Api.ADD_OFFSETS_TO_TXN: {ErrorCode.invalid_producer_epoch},
    Api.TXN_OFFSET_COMMIT: {TOPIC},
    Api.END_TXN: {ErrorCode.invalid_producer_epoch},
}
"""The errors of a request for what belongs to somebody else."""


TEXTS = {
    "name": "mine",
    "topic": "mine",
    "topics": "mine",
    "topic_names": "mine",
    "resource_name": "mine",
    "member_id": "",
    "config_names": "retention.ms",
    "mechanism": "PLAIN",
    "protocol_type": "consumer",
    "value": "1",
}
NUMBERS = {
    "acks": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "producer_id": 7,
    "v3_and_below_producer_id": 7,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "timestamp": -1,
    "session_id": 0,
    "session_epoch": -1,
    "max_bytes": 1000,
    "partition_max_bytes": 1000,
}

# The client is no member.
NUMBERS_OF = {(Api.OFFSET_FETCH, "member_epoch"): -1}


class Foreign:
    """Fields that name the topic, the group and the transactional id of another."""

    def __init__(self, api, key):
        self._api, self._key = api, key

    def count(self, name):
        return 0 if name in {"assignments", "configs"} and self._is_creation else 1

    @property
    def _is_creation(self):
        return self._api in {Api.CREATE_TOPICS, Api.CREATE_PARTITIONS}

    def value(self, name, kafka_type, *, may_be_none):
        if kafka_type == "string":
            if "transactional_id" in name:
                return None if self._api is Api.PRODUCE else "tx"
            return TEXTS.get(name, "g")
        if name == "count":
            return 5
        if name == "auth_bytes":
            return f"\0stranger\0{self._key}".encode()
        if name == "records":
            records = Records(timestamps=[1], keys=[None], values=[b"x"], headers=[()])
            return encode_batch(records, [0])
        return NUMBERS_OF.get(
            (self._api, name), NUMBERS.get(name, default_of(kafka_type))
        )


def codes_of(answer):
    """The error codes in an answer."""
    found = set()
    for each in fields(answer):
        value = getattr(answer, each.name)
        if isinstance(value, ErrorCode):
            found.add(value)
        for element in value if isinstance(value, tuple) else (value,):
            if is_dataclass(element):
                found |= codes_of(element)
    return found


async def state_of(admin):
    """The state that requests could change."""
    topics = await admin.topics.list("default")
    described = await admin.topics.describe("/default/mine")
    return (
        [str(each) for each in topics],
        described.end_offset,
        [(each.subscription, each.cursor) for each in described.subscriptions],
        described.policy,
    )


async def test_each_request_is_refused_for_what_belongs_to_another(tmp_path):
    assert set(REFUSED) == set(Api)
    async with (
        secured(tmp_path, kafka={"port": 0}) as broker,
        pydanube.connect(broker.stream_url, api_key=bootstrap_key(tmp_path)) as admin,
    ):
        await admin.topics.create("/default/mine")
        async with admin.producer("/default/mine") as producer:
            await producer.send(b"1")
        await admin.subscriptions.create("/default/mine", "g")
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        async with KafkaRequests(port) as raw:
            await raw.authenticate("admin", bootstrap_key(tmp_path))
            begun = await raw.ask(
                Api.INIT_PRODUCER_ID,
                4,
                **any_fields(Api.INIT_PRODUCER_ID, 4, Init()),
            )
            assert not begun.error_code
        made = await admin.security.create_api_key("stranger")
        before = await state_of(admin)
        found = {}
        for api, versions in VERSIONS.items():
            for version in sorted(set(versions)):
                async with KafkaRequests(port) as raw:
                    if api is not Api.SASL_AUTHENTICATE:
                        await raw.authenticate("stranger", made.key)
                    else:
                        await raw.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
                    answer = await raw.ask(
                        api,
                        version,
                        **any_fields(api, version, Foreign(api, made.key)),
                    )
                codes = codes_of(answer)
                # An answer may begin with an error code of its own, which is none.
                refusals = REFUSED[api] - {NONE}
                assert codes - {NONE} == refusals, (api, version)
                found.setdefault(api, set()).update(codes)
        assert found == REFUSED
        assert await state_of(admin) == before


class Init(Foreign):
    """The fields with which a producer begins."""

    def __init__(self):
        super().__init__(Api.INIT_PRODUCER_ID, "")

    def value(self, name, kafka_type, *, may_be_none):
        if name in {"producer_id", "producer_epoch"}:
            return -1
        return super().value(name, kafka_type, may_be_none=may_be_none)
