"""What is whole is called whole, and every kind of damage is named."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.wire.files.segment_format import (
    SCHEMA,
)
from pydanube_spark.tables.maintenance.segment_jobs import (
    rewrite,
)
from pydanube_spark.tables.maintenance.verification import VerifyJob, verify
from support.fakes.segment_files import (
    TOPIC,
    TOPIC_ID,
    Row,
    rewriting,
    segment_of,
    write_topic,
)

ROWS = [[Row(b"k%d" % (at % 3), b"%d" % at) for at in range(10)] for _ in range(2)]


def test_intact_segments_are_verified(tmp_path):
    found = write_topic(tmp_path, ROWS)
    done = rewrite(rewriting(found))
    merged = segment_of(tmp_path, done.name, 0, 20, 20)
    assert merged.checksum == done.checksum
    for segment in (*found.segments, merged):
        assert (
            verify(VerifyJob(topic=TOPIC, topic_id=TOPIC_ID, segment=segment)) is None
        )
    unchecked = replace(found.segments[0], checksum=None)
    job = VerifyJob(topic=TOPIC, topic_id=TOPIC_ID, segment=unchecked)
    assert verify(job) is None


def test_every_kind_of_damage_is_named(tmp_path):
    found = write_topic(tmp_path, ROWS)
    segment = found.segments[0]
    path = tmp_path / segment.object_name
    good = path.read_bytes()

    def problem(segment=segment, data=good, topic_id=TOPIC_ID):
        path.write_bytes(data)
        return verify(VerifyJob(topic=TOPIC, topic_id=topic_id, segment=segment))

    assert problem() is None
    flipped = bytearray(good)
    flipped[len(good) // 3] ^= 1
    assert "checksum" in problem(data=flipped)
    # Without a checksum in the manifest, those of the pages find the damage.
    assert "cannot be read" in problem(replace(segment, checksum=None), flipped)
    assert "bytes" in problem(data=good[:-1])
    assert "the topic id 8" in problem(topic_id=8)
    assert "footer says" in problem(replace(segment, end=11))
    assert "the manifest says 9" in problem(replace(segment, count=9))
    path.unlink()
    gone = verify(VerifyJob(topic=TOPIC, topic_id=TOPIC_ID, segment=segment))
    assert gone is not None


def test_offsets_that_do_not_rise_are_damage(tmp_path):
    found = write_topic(tmp_path, ROWS[:1])
    (segment,) = found.segments
    path = tmp_path / segment.object_name
    file = pq.ParquetFile(path)
    table, said = file.read(), file.metadata.metadata
    file.close()
    del said[b"ARROW:schema"]
    order = pa.array([1, 0, *range(2, 10)])
    pq.write_table(table.take(order).cast(SCHEMA.with_metadata(said)), path)
    damaged = segment_of(tmp_path, segment.object_name, 0, 10, 10)
    answer = verify(VerifyJob(topic=TOPIC, topic_id=TOPIC_ID, segment=damaged))
    assert "do not rise" in answer
