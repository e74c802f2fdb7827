"""
Moves topics of Kafka with their groups to a broker of pydanube.

Records keep their partitions, order, keys, values, headers and times.  Ids of schemas
before keys and values become those of the new registry.  The program follows the
topics until Ctrl-C; with ``--finish`` it ends when it has everything, and translates
the offsets that groups have committed.  It goes on where it has stopped, also after a
crash: it writes which offsets of Kafka became which ones into the directory of
``--state``.

See docs/guide/move-from-kafka.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import confluent_kafka
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

CHUNK = 5000
WAIT_S = 60.0


@dataclass(slots=True)
class Run:
    """Records whose offsets follow each other in Kafka: *count* from *source* on."""

    source: int
    target: int
    count: int


@dataclass(slots=True)
class Partition:
    """What was moved of a partition, in a file with a line for each run."""

    path: Path
    runs: list[Run] = field(default_factory=list[Run])

    def load(self) -> None:
        """Read the file, without a line that a crash has cut off."""
        text = self.path.read_text() if self.path.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        self.runs = [Run(*json.loads(line)) for line in complete.splitlines()]
        self.path.write_text(complete)

    @property
    def next_source(self) -> int:
        """The offset of Kafka to go on from."""
        return self.runs[-1].source + self.runs[-1].count if self.runs else 0

    @property
    def next_target(self) -> int:
        """The offset that the next record gets."""
        return self.runs[-1].target + self.runs[-1].count if self.runs else 0

    def add(self, sources: Iterable[int]) -> None:
        """Write that the records at *sources* have the next offsets."""
        added = list[Run]()
        target = self.next_target
        for source in sources:
            if added and added[-1].source + added[-1].count == source:
                added[-1].count += 1
            else:
                added.append(Run(source, target, 1))
            target += 1
        with self.path.open("a") as file:
            for run in added:
                print(json.dumps([run.source, run.target, run.count]), file=file)
        self.runs += added

    def translate(self, offset: int) -> int:
        """Return the new offset of the record at *offset* of Kafka, or of the next."""
        at = bisect_right(self.runs, offset, key=lambda run: run.source) - 1
        if at < 0:
            return self.runs[0].target if self.runs else 0
        run = self.runs[at]
        return run.target + min(run.count, offset - run.source)


class Schemas:
    """The ids that schemas of the old registry have in the new one."""

    def __init__(self, old: str | None, new: str | None) -> None:
        self._old, self._new = old, new
        self._ids: dict[int, int] = {}
        self._versions: dict[str, dict[int, int]] = {}
        """The numbers of versions in the new registry, by those in the old one."""

    def rewrite(self, data: bytes | None) -> bytes | None:
        """Return a key or a value with the new id, if it begins with an id."""
        if self._old is None or data is None or len(data) < 5 or data[0]:
            return data
        old = int.from_bytes(data[1:5], "big")
        if old not in self._ids:
            self._register(old)
        return b"\0" + self._ids[old].to_bytes(4, "big") + data[5:]

    def _register(self, old: int) -> None:
        """Register all versions of the subject that has an id."""
        versions = _ask(f"{self._old}/schemas/ids/{old}/versions")
        if not versions:
            sys.exit(f"the registry {self._old} does not know the schema {old}")
        self._copy(versions[0]["subject"], seen=())

    def _copy(self, subject: str, seen: tuple[str, ...]) -> dict[int, int]:
        """Register the versions of a subject in order, after those they refer to."""
        if subject in seen:
            sys.exit(f"the schemas of {subject} refer to themselves: {', '.join(seen)}")
        path = f"subjects/{quote(subject, safe='')}"
        numbers = self._versions.setdefault(subject, {})
        for version in _ask(f"{self._old}/{path}/versions"):
            if version in numbers:
                continue
            found = _ask(f"{self._old}/{path}/versions/{version}")
            body = {key: found[key] for key in ("schema", "schemaType") if key in found}
            body["references"] = [
                each | {"version": self._copy_of(each, (*seen, subject))}
                for each in found.get("references", ())
            ]
            self._ids[found["id"]] = _ask(f"{self._new}/{path}/versions", body)["id"]
            numbers[version] = _ask(f"{self._new}/{path}", body)["version"]
        return numbers

    def _copy_of(self, reference: Mapping[str, Any], seen: tuple[str, ...]) -> int:
        """Return the new number of a version that a schema refers to."""
        subject, version = reference["subject"], reference["version"]
        numbers = self._versions.get(subject, {})
        if version not in numbers:
            numbers = self._copy(subject, seen)
        if version not in numbers:
            sys.exit(f"the registry {self._old} has no version {version} of {subject}")
        return numbers[version]


def _ask(url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(url, data, headers)) as answer:  # noqa: S310
        return json.load(answer)


class Move:
    """A move of topics."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._source = _settings(options.source, options.source_set)
        self._target = _settings(options.target, options.target_set)
        self._state: Path = options.state
        self._schemas = Schemas(options.source_registry, options.target_registry)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._skipped: dict[tuple[str, int], int] = {}
        """Records that were stored before a crash, and not written into the state."""
        self._failure: str | None = None

    def run(self, topics: list[str], *, finish: bool) -> None:
        """Copy *topics*, until there is nothing left if they are to *finish*."""
        reader = confluent_kafka.Consumer(
            {
                **self._source,
                "group.id": "pydanube-move",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        writer = confluent_kafka.Producer(
            {**self._target, "enable.idempotence": True, "linger.ms": 5}
        )
        for topic in topics:
            self._open(topic, AdminClient(self._source), AdminClient(self._target))
        self._find_unrecorded()
        reader.assign(
            [
                # 0 may be gone: the reader then begins with the first one that is kept.
                TopicPartition(topic, number, each.next_source)
                for (topic, number), each in self._partitions.items()
            ]
        )
        ended = set[tuple[str, int]]()
        while not finish or ended < self._partitions.keys():
            chunk = list[Message]()
            for message in reader.consume(CHUNK, 1.0):
                key = message.topic() or "", message.partition() or 0
                error = message.error()
                if error is None:
                    chunk.append(message)
                    ended.discard(key)
                elif error.name() == "_PARTITION_EOF":
                    ended.add(key)
                else:
                    sys.exit(f"cannot read {key[0]}: {error}")
            self._copy(writer, chunk)
        reader.close()

    def _open(self, topic: str, source: AdminClient, target: AdminClient) -> None:
        found = source.list_topics(topic, timeout=WAIT_S).topics[topic]
        if found.error is not None:
            sys.exit(f"cannot read {topic}: {found.error}")
        directory = self._state / topic
        if not directory.exists():
            # If it exists already, other records are in it: this fails then.
            new = NewTopic(topic, len(found.partitions), 1)
            target.create_topics([new])[topic].result()
            directory.mkdir(parents=True)
        for number in found.partitions:
            partition = Partition(directory / f"{number}.jsonl")
            partition.load()
            self._partitions[topic, number] = partition

    def _find_unrecorded(self) -> None:
        settings = {**self._target, "group.id": "pydanube-move"}
        looking = confluent_kafka.Consumer(settings)
        for (topic, number), each in self._partitions.items():
            there = TopicPartition(topic, number)
            _, end = looking.get_watermark_offsets(there, timeout=WAIT_S)
            self._skipped[topic, number] = end - each.next_target
            if end < each.next_target:
                sys.exit(f"{topic} has lost records: its end is {end}")
        looking.close()

    def _copy(self, writer: confluent_kafka.Producer, chunk: list[Message]) -> None:
        sources: dict[tuple[str, int], list[int]] = {}
        for message in chunk:
            topic, number = message.topic() or "", message.partition() or 0
            sources.setdefault((topic, number), []).append(message.offset() or 0)
            if self._skipped[topic, number]:
                self._skipped[topic, number] -= 1
                continue
            kind, time = message.timestamp()
            writer.produce(
                topic,
                self._schemas.rewrite(_bytes(message.value())),
                self._schemas.rewrite(_bytes(message.key())),
                number,
                on_delivery=self._on_delivery,
                timestamp=time if kind else 0,
                headers=message.headers() or [],
            )
            writer.poll(0)
        if writer.flush(WAIT_S) or self._failure:
            sys.exit(f"cannot write: {self._failure or 'no answer'}")
        for key, offsets in sources.items():
            self._partitions[key].add(offsets)

    def _on_delivery(self, error: Any, _: Message) -> None:
        if error is not None:
            self._failure = str(error)

    def translate(self, groups: list[str]) -> None:
        """Commit what *groups* have committed, by default all of them."""
        source, target = AdminClient(self._source), AdminClient(self._target)
        if not groups:
            listed = source.list_consumer_groups().result().valid
            groups = [each.group_id for each in listed]
        for group in groups:
            request = confluent_kafka.ConsumerGroupTopicPartitions(group)
            found = source.list_consumer_group_offsets([request])[group].result()
            translated = [
                TopicPartition(
                    each.topic,
                    each.partition,
                    self._partitions[each.topic, each.partition].translate(each.offset),
                )
                for each in found.topic_partitions
                if each.offset >= 0 and (each.topic, each.partition) in self._partitions
            ]
            if translated:
                new = confluent_kafka.ConsumerGroupTopicPartitions(group, translated)
                target.alter_consumer_group_offsets([new])[group].result()
                print(f"{group}: {len(translated)} offsets")


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _settings(servers: str, more: list[str]) -> dict[str, Any]:
    pairs = (each.partition("=") for each in more)
    return {"bootstrap.servers": servers} | {name: value for name, _, value in pairs}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Move topics of Kafka to pydanube.")
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--source", required=True, help="a broker of Kafka")
    parser.add_argument("--target", required=True, help="the listener of pydanube")
    parser.add_argument("--source-registry", help="the URL of the old registry")
    parser.add_argument("--target-registry", help="the HTTP port of pydanube, as a URL")
    parser.add_argument("--source-set", action="append", default=[], metavar="K=V")
    parser.add_argument("--target-set", action="append", default=[], metavar="K=V")
    parser.add_argument("--state", type=Path, default=Path("move-state"))
    parser.add_argument("--finish", action="store_true", help="end, and move groups")
    parser.add_argument("--group", action="append", default=[], help="not all groups")
    options = parser.parse_args()
    if (options.source_registry is None) != (options.target_registry is None):
        parser.error("name both registries or none")
    move = Move(options)
    try:
        move.run(options.topics, finish=options.finish)
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here")
        return
    move.translate(options.group)


if __name__ == "__main__":
    main()
