"""The connection to Kafka."""

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError

from pydanube_connect.kafka_options import KafkaConnection, failure_of, settings_of
from pydanube_connect.pure.failures import ConnectorFailed, Transient

TRANSPORT, AUTHENTICATION = -195, -169
"""Codes of errors, as librdkafka has them."""


def test_settings_follow_from_the_options():
    options = KafkaConnection(
        servers="a:1,b:2",
        username="u",
        password="p",
        tls=True,
        ca_file="ca.pem",
        settings={"client.id": "own"},
    )
    assert settings_of(options) == {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "own",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "ca.pem",
    }
    assert settings_of(KafkaConnection())["security.protocol"] == "PLAINTEXT"


def test_only_errors_that_may_pass_are_tried_again():
    passing = failure_of(KafkaError(TRANSPORT), "reading")
    assert isinstance(passing, Transient)
    assert str(passing).startswith("reading: ")
    lasting = failure_of(KafkaError(AUTHENTICATION), "reading")
    assert isinstance(lasting, ConnectorFailed)
