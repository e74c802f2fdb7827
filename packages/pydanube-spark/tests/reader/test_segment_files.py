"""Tasks that read segments give the truth or `CorruptSegment`, and copy no damage."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pydanube.model.errors import CorruptSegment
from pydanube.wire.files.segment_checksums import part_checksums_of
from pydanube_spark.reader.pure.scans import Scan, SegmentRange
from pydanube_spark.reader.scan_reader import SCHEMA, read_scan
from pydanube_spark.tables.maintenance.segment_jobs import rewrite
from pydanube_spark.tables.maintenance.verification import VerifyJob, verify
from support.fakes.segment_files import TOPIC, TOPIC_ID, Row, rewriting, write_topic

ROWS = [[Row(b"k%d" % (at % 3), b"%d" % at) for at in range(10)]]


@pytest.fixture
def found(tmp_path):
    """A topic of one segment with checksums of its parts."""
    found = write_topic(tmp_path, ROWS)
    (segment,) = found.segments
    with pa.OSFile(str(path_of(segment))) as file:
        parts = part_checksums_of(file)
    return replace(found, segments=(replace(segment, part_checksums=parts),))


def path_of(segment):
    return Path(segment.url.removeprefix("file://"))


def damaged(segment, step):
    """The segment with each byte, or every so many, changed in turn."""
    path = path_of(segment)
    good = path.read_bytes()
    # The magic number at the beginning is not read.
    for at in range(4, len(good), step):
        content = bytearray(good)
        content[at] ^= 1 << at % 8
        path.write_bytes(content)
        yield at


def scan_of(segment):
    base, end = segment.base, segment.end
    return Scan(TOPIC, TOPIC_ID, base, end, (SegmentRange(segment, base, end),))


def read(scan, names):
    schema = pa.schema([SCHEMA.field(name) for name in names])
    batches = read_scan(scan, schema, None, fail_on_data_loss=True)
    return pa.Table.from_batches(batches, schema).to_pylist()


@pytest.mark.parametrize("names", [SCHEMA.names, ["offset", "key"]])
def test_scan_of_a_damaged_segment_is_right_or_fails(found, names):
    (segment,) = found.segments
    scan = scan_of(segment)
    truth = read(scan, names)
    for _ in damaged(segment, 61):
        rows = error = None
        try:
            rows = read(scan, names)
        except CorruptSegment as raised:
            error = str(raised)
        if error is not None:
            assert f"{segment.url}, offsets 0 to 10" in error
            continue
        assert rows == truth
        # Only bytes that this scan does not read may be damaged unnoticed.
        assert len(names) < len(SCHEMA.names)


def test_damage_is_not_copied_into_a_new_segment(found):
    for _ in damaged(found.segments[0], 61):
        with pytest.raises(CorruptSegment):
            rewrite(rewriting(found))


def test_verification_finds_every_damaged_byte(found):
    (segment,) = found.segments
    job = VerifyJob(topic=TOPIC, topic_id=TOPIC_ID, segment=segment)
    assert verify(job) is None
    for at in damaged(segment, 61):
        assert verify(job) is not None, at


def test_a_segment_that_the_broker_lists_and_that_is_missing_is_named(found):
    (segment,) = found.segments
    path_of(segment).unlink()
    with pytest.raises(CorruptSegment, match="missing"):
        rewrite(rewriting(found))
