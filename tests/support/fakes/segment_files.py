"""A topic's segments as files in a directory, and a broker that serves these alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow.parquet as pq

from pydanube.model.descriptions import Segment, Segments
from pydanube.model.errors import SegmentsChanged, TopicHeld
from pydanube.model.names import TopicName
from pydanube.wire.files.segment_format import (
    Run,
    SegmentIdentity,
    object_name,
    parse_object_name,
    rewritten_name,
)
from pydanube_broker.storage.segments.segments import encode_segment
from pydanube_spark.tables.maintenance.object_files import ObjectRoot, checksum_of
from pydanube_spark.tables.maintenance.segment_jobs import RewriteJob
from support.fakes.batches import A_TIME, frame_of

TOPIC = str(TopicName.parse("/default/profiles"))
TOPIC_ID = 7
IDENTITY = SegmentIdentity(topic=TOPIC, topic_id=TOPIC_ID, epoch=1)


@dataclass(frozen=True)
class Row:
    """One message."""

    key: bytes | None
    payload: bytes
    time: int = A_TIME


def write_segment(root, base, rows, *, batch=5, row_group_bytes=400, epoch=1):
    """A segment of *rows* from the offset *base* on, as sealing writes it."""
    frames = []
    for at in range(0, len(rows), batch):
        part = rows[at : at + batch]
        frame = frame_of(
            [row.payload for row in part],
            keys=[row.key for row in part],
            publish_times=[row.time for row in part],
        )
        frame.stamp(base + at, epoch)
        frames.append(frame)
    identity = SegmentIdentity(topic=TOPIC, topic_id=TOPIC_ID, epoch=epoch)
    data = encode_segment(frames, identity, row_group_bytes=row_group_bytes)
    end = base + len(rows)
    name = object_name("", TOPIC, base, end, epoch)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (root / ".parts").mkdir(exist_ok=True)
    path.write_bytes(data)
    return segment_of(root, name, base, end, len(rows))


def segment_of(root, name, base, end, count):
    """The broker's description of a file."""
    url = (root / name).as_uri()
    checksum, byte_count = checksum_of(url)
    return Segment(
        base=base,
        end=end,
        epoch=1,
        count=count,
        byte_count=byte_count,
        url=url,
        object_name=name,
        checksum=checksum,
        first_publish_time=A_TIME,
        last_publish_time=A_TIME,
        sealed_at=A_TIME,
    )


def write_topic(root, groups, **options):
    """Consecutive segments of *groups* of rows."""
    segments, base = [], 0
    for rows in groups:
        segments.append(write_segment(root, base, rows, **options))
        base += len(rows)
    return Segments(
        topic_id=TOPIC_ID,
        segments=tuple(segments),
        base_offset=0,
        sealed_offset=base,
        end_offset=base,
        epoch=1,
        objects_url=root.as_uri(),
    )


def read_rows(segments):
    """Every message of *segments* by offset."""
    found = {}
    for segment in segments:
        rows = pq.read_table(segment.url.removeprefix("file://")).to_pylist()
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(offsets)
        assert all(segment.base <= each < segment.end for each in offsets)
        for row in rows:
            assert row["offset"] not in found
            found[row["offset"]] = Row(
                row["key"], row["payload"], int(row["publish_time"].timestamp() * 1e6)
            )
    return found


@dataclass
class FileBroker:
    """A fake client for maintenance, for one topic whose segments are files."""

    root: object
    found: Segments
    holds: tuple = ()
    swaps: list = field(default_factory=list)
    before_swap: list = field(default_factory=list)
    """Callbacks before the next replacements, one for each."""

    def segments(self, topic):
        assert topic == TOPIC
        return self.found

    @property
    def topics(self):
        return self

    @property
    def storage(self):
        return self

    def describe(self, topic):
        assert topic == TOPIC
        return self

    def replace_segments(self, topic, topic_id, old, new):
        assert (topic, topic_id) == (TOPIC, TOPIC_ID)
        if self.before_swap:
            self.before_swap.pop(0)()
        if self.holds:
            raise TopicHeld("on purpose")
        segments = self.found.segments
        names = [each.object_name for each in segments]
        if old[0] not in names:
            raise SegmentsChanged("on purpose")
        at = names.index(old[0])
        end = at + len(old)
        assert names[at:end] == list(old)
        ((name, byte_count, checksum),) = new
        parsed = parse_object_name(name)
        assert (parsed.base, parsed.end) == (segments[at].base, segments[end - 1].end)
        count = pq.read_metadata(self.root / name).num_rows
        written = segment_of(self.root, name, parsed.base, parsed.end, count)
        assert (written.byte_count, written.checksum) == (byte_count, checksum)
        before = sum(each.count for each in segments[at:end])
        together = (*segments[:at], written, *segments[end:])
        self.found = replace(self.found, segments=together)
        self.swaps.append((list(old), name))
        return before - count


def rewriting(found):
    """The job that makes one segment of all in *found*."""
    segments = found.segments
    prefix = segments[0].object_name.rpartition("/")[0] + "/"
    base, end = segments[0].base, segments[-1].end
    return RewriteJob(
        identity=IDENTITY,
        segments=segments,
        root=root_of(segments[0]),
        name=rewritten_name(prefix, base, end, 1, Run(1, 1)),
        rule=None,
    )


def root_of(segment):
    """The root of the object store that has *segment*."""
    return ObjectRoot(segment.url.removesuffix(f"/{segment.object_name}"))
