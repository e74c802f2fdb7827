"""A fake catalog for the reader: topics as files in a directory."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.descriptions import Segment
from pydanube.model.envelope import ATTRIBUTES_TYPE, TIME_TYPE
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    OffsetDropped,
    TopicNotFound,
)
from pydanube.model.schemas import (
    Compatibility,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
)
from pydanube.wire.files.segment_format import FORMAT, SCHEMA
from pydanube_spark.reader.catalog import ChangedHeads, Layout
from pydanube_spark.reader.pure.bounds import split_name
from pydanube_spark.reader.pure.query_positions import Head
from pydanube_spark.reader.pure.scans import TopicRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FIRST_TIME_US = 1_700_000_000_000_000
"""The publish time of the first message of every topic."""

SEGMENT_SCHEMA = SCHEMA.with_metadata({"danube.format": FORMAT})


def messages(base: int, end: int, payload_bytes: int = 0) -> pa.RecordBatch:
    """Messages whose every column follows from their offset."""
    offsets = range(base, end)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([FIRST_TIME_US + each for each in offsets], TIME_TYPE),
            pa.array(
                [None if each % 5 == 0 else b"k%d" % (each % 5) for each in offsets]
            ),
            pa.array([(b"m%d" % each).ljust(payload_bytes, b".") for each in offsets]),
            pa.array(
                [[("n", str(each))] if each % 2 else None for each in offsets],
                ATTRIBUTES_TYPE,
            ),
            pa.array(["test"] * len(offsets)),
            pa.array([0] * len(offsets), pa.int64()),
            pa.array([0] * len(offsets), pa.int32()),
            pa.nulls(len(offsets), TIME_TYPE),
            pa.nulls(len(offsets), TIME_TYPE),
        ],
        schema=SEGMENT_SCHEMA,
    )


def segment(
    base: int, end: int, byte_count: int, url: str, count: int | None = None
) -> Segment:
    """A segment without checksums; *count* is None: as many messages as offsets."""
    return Segment(
        base=base,
        end=end,
        epoch=1,
        count=end - base if count is None else count,
        byte_count=byte_count,
        object_name=url,
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=0,
        url=url,
    )


@dataclass
class TopicDirectory:
    """
    Topics of numbered messages: sealed ones in Parquet files, the rest as a tail.

    All of the state is in the directory, so that other processes see it too.
    """

    path: Path
    payload_bytes: int = 0
    row_group_rows: int = 10
    progress: dict[tuple[str, str], int] = field(default_factory=dict)
    subjects: dict[str, list[SchemaVersion]] = field(default_factory=dict)
    """The versions of each."""
    bound: dict[str, str] = field(default_factory=dict)
    """The subject of each topic that has one."""

    # What happened.

    def create(self, topic: str, topic_id: int = 1) -> None:
        self._save(topic, {"id": topic_id, "base": 0, "end": 0, "segments": []})

    def publish(self, topic: str, count: int) -> None:
        state = self._load(topic)
        self._save(topic, state | {"end": state["end"] + count})

    def seal(self, topic: str, end: int | None = None) -> None:
        """Make one segment of the tail, or of its part below *end*."""
        state = self._load(topic)
        base = self._sealed(state)
        end = state["end"] if end is None else end
        path = self.path / f"{state['id']}-{base:020}-{end:020}.parquet"
        table = pa.Table.from_batches([messages(base, end, self.payload_bytes)])
        pq.write_table(table, path, row_group_size=self.row_group_rows)
        sealed = [base, end, path.stat().st_size, path.as_uri()]
        self._save(topic, state | {"segments": [*state["segments"], sealed]})

    def drop_below(self, topic: str, offset: int) -> None:
        """Drop whole segments, as retention does."""
        state = self._load(topic)
        kept = [each for each in state["segments"] if each[1] > offset]
        for gone in state["segments"][: len(state["segments"]) - len(kept)]:
            Path(gone[3].removeprefix("file://")).unlink()
        base = kept[0][0] if kept else self._sealed(state)
        self._save(topic, state | {"segments": kept, "base": base})

    def compact(self, topic: str) -> None:
        """Replace all segments by one."""
        state = self._load(topic)
        end = self._sealed(state)
        for gone in state["segments"]:
            Path(gone[3].removeprefix("file://")).unlink()
        path = self.path / f"{state['id']}-compacted-{end}.parquet"
        table = pa.Table.from_batches(
            [messages(state["base"], end, self.payload_bytes)]
        )
        pq.write_table(table, path, row_group_size=self.row_group_rows)
        joined = [state["base"], end, path.stat().st_size, path.as_uri()]
        self._save(topic, state | {"segments": [joined]})

    def thin_out(self, topic: str, keep: Callable[[int], bool]) -> None:
        """Remove some messages of the segments, as compaction does."""
        state = self._load(topic)
        segments = []
        for base, end, _, url, *_ in state["segments"]:
            path = Path(url.removeprefix("file://"))
            whole = pq.read_table(path)
            kept = [row for row in range(whole.num_rows) if keep(base + row)]
            table = whole.take(pa.array(kept, pa.int64()))
            path.unlink()
            path = path.with_name(f"thin-{path.name}")
            pq.write_table(table, path, row_group_size=self.row_group_rows)
            segments.append([base, end, path.stat().st_size, path.as_uri(), len(kept)])
        self._save(topic, state | {"segments": segments})

    def delete(self, topic: str) -> None:
        self._file(topic).unlink()

    # What the source asks.

    def topics(self) -> list[str]:
        names = [file.stem.replace("~", "/") for file in self.path.glob("*.json")]
        return sorted(names)

    def head(self, topic: str) -> Head:
        state = self._load(topic)
        sealed = self._sealed(state)
        return Head(state["id"], state["base"], state["end"], sealed)

    def heads(
        self, topics: Iterable[str], *, skips_non_reliable: bool = False
    ) -> dict[str, Head]:
        heads = {}
        for topic in topics:
            try:
                heads[topic] = self.head(topic)
            except TopicNotFound:
                continue
            except InvalidRequest:
                if not skips_non_reliable:
                    raise
        return heads

    def changed_heads(
        self, topics: Iterable[str], since: object = None, *, skips_non_reliable: bool
    ) -> ChangedHeads:
        heads = self.heads(topics, skips_non_reliable=skips_non_reliable)
        return ChangedHeads(heads, None, is_complete=True)

    def partitions(self, topic: str) -> list[str]:
        return [name for name in self.topics() if topic in (name, split_name(name)[0])]

    def offset_at_time(self, topic: str, time_us: int) -> int | None:
        head = self.head(topic)
        found = max(head.base, time_us - FIRST_TIME_US)
        return found if found < head.end else None

    def layout(self, topic: str, base: int, end: int) -> tuple[Head, TopicRange]:
        state = self._load(topic)
        files = tuple(
            segment(*each)
            for each in state["segments"]
            if each[0] < end and each[1] > base
        )
        return self.head(topic), TopicRange(topic, state["id"], base, end, files)

    def layouts(self, ranges: dict[str, tuple[int, int]]) -> dict[str, Layout]:
        layouts = {}
        for topic, (base, end) in ranges.items():
            with suppress(TopicNotFound):
                layouts[topic] = Layout(*self.layout(topic, base, end))
        return layouts

    def read(self, topic: str, base: int, end: int) -> Iterator[pa.RecordBatch]:
        head = self.head(topic)
        if base < head.base:
            raise OffsetDropped(f"{topic}: the first message is {head.base}")
        # Batches as they once arrived: seven messages each.
        gone = self._gone(topic)
        for at in range(base - base % 7, min(end, head.end), 7):
            batch = messages(at, min(at + 7, head.end), self.payload_bytes)
            kept = [row for row in range(batch.num_rows) if at + row not in gone]
            yield batch.take(pa.array(kept, pa.int64())) if gone else batch

    def _gone(self, topic: str) -> set[int]:
        """The offsets of segments that have no message."""
        gone: set[int] = set()
        for base, end, _, url, *count in self._load(topic)["segments"]:
            if count and count[0] < end - base:
                table = pq.read_table(url.removeprefix("file://"), columns=["offset"])
                gone |= set(range(base, end)) - set(table["offset"].to_pylist())
        return gone

    def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        self.progress[topic, subscription] = offset

    def report_positions(
        self, subscription: str, offsets: dict[str, int]
    ) -> dict[str, BrokerError]:
        errors: dict[str, BrokerError] = {}
        for topic, offset in offsets.items():
            try:
                self.report_progress(topic, subscription, offset)
            except BrokerError as error:
                errors[topic] = error
        return errors

    def subject_of(self, topic: str) -> str | None:
        self._load(topic)
        return self.bound.get(topic)

    def subject(self, subject: str) -> SubjectDescription:
        versions = self.subjects[subject]
        return SubjectDescription(
            subject=subject,
            schema_id=versions[0].schema_id,
            type=versions[0].type,
            compatibility=Compatibility.NONE,
            versions=tuple(each.version for each in versions),
        )

    def schema_version(self, subject: str, version: int) -> SchemaVersion:
        [found] = [each for each in self.subjects[subject] if each.version == version]
        return found

    def register(self, subject: str, *definitions: str, schema_id: int = 1) -> None:
        """Register *definitions*, JSON Schemas, as versions of *subject* from 1."""
        self.subjects[subject] = [
            SchemaVersion(
                subject=subject,
                schema_id=schema_id,
                version=version,
                type=SchemaType.JSON_SCHEMA,
                definition=definition,
                fingerprint="",
                created_at=0,
            )
            for version, definition in enumerate(definitions, start=1)
        ]

    def _sealed(self, state: dict) -> int:
        return state["segments"][-1][1] if state["segments"] else state["base"]

    def _file(self, topic: str) -> Path:
        return self.path / f"{topic.replace('/', '~')}.json"

    def _load(self, topic: str) -> dict:
        try:
            return json.loads(self._file(topic).read_text())
        except FileNotFoundError:
            raise TopicNotFound(f"no such topic: {topic}") from None

    def _save(self, topic: str, state: dict) -> None:
        self._file(topic).write_text(json.dumps(state))
