"""A broker of Apache Kafka that tests may kill."""

from __future__ import annotations

import subprocess
import time

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.servers import accepts, clean_environ
from bench.systems.kafka_broker import find_jars, prepare
from support.project import ROOT
from support.servers.kafka import TIMEOUT_S
from support.servers.ports import free_port

JARS = ROOT / ".venv" / "kafka"


class KafkaProcess:
    """A node of Kafka, from the jars that ``tools/kafka`` has fetched."""

    def __init__(self, directory) -> None:
        jars = find_jars() or JARS
        assert any(jars.glob("kafka_2.*.jar")), "this test needs Kafka: run tools/kafka"
        self._port = free_port()
        self.servers = f"127.0.0.1:{self._port}"
        self._log = directory / "log"
        self._command = prepare(directory, self._port, jars, {})
        self._process = None

    def __enter__(self) -> KafkaProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=clean_environ()
            )
        while not accepts(self._port):
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def count(self, topic: str) -> int:
        """Return how many messages the only partition of *topic* has."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "count"})
        try:
            partition = TopicPartition(topic, 0)
            low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return high - low

    def create_topic(self, name: str) -> None:
        """Create a topic of one partition."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        created = admin.create_topics([NewTopic(name, 1, 1)])
        created[name].result(TIMEOUT_S)
