"""The records of a transaction are a part of a staged version."""

from __future__ import annotations

from pydanube_kafka.pure.transactions import ProducerState
from pydanube_kafka.transaction_parts import part_key, query_of, transactional_id_of


def test_the_query_of_a_transactional_id_leads_back_to_it():
    for transactional_id in ("tx", "a/b%", "é ü"):
        assert transactional_id_of(query_of(transactional_id)) == transactional_id
    assert transactional_id_of("spark-7") is None


def test_a_part_belongs_to_one_epoch_of_its_producer():
    state = ProducerState(producer_id=7, epoch=1, timeout_s=10.0, version=100)
    key = part_key("tx/1", state, "p")
    assert (key.query, key.version) == ("kafka-tx%2F1", 100)
    assert (key.name, key.part_id) == ("p", "7-1")
