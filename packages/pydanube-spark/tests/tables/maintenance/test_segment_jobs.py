"""What single jobs do with files that are damaged, old, or in many pieces."""

import pyarrow.parquet as pq
import pytest

from pydanube.model.errors import CorruptSegment
from pydanube.wire.files.segment_format import (
    read_footer,
)
from pydanube_spark.tables.maintenance.segment_jobs import (
    CollectKeysJob,
    collect_keys,
    key_bytes_of,
    rewrite,
)
from support.fakes.batches import A_TIME
from support.fakes.segment_files import (
    TOPIC,
    Row,
    rewriting,
    root_of,
    write_topic,
)

ROWS = [[Row(b"k%d" % (at % 3), b"%d" % at) for at in range(10)] for _ in range(2)]


def test_a_new_segment_has_row_groups_that_are_large_enough(tmp_path):
    found = write_topic(tmp_path, ROWS)
    assert sum(groups_of(tmp_path, each.object_name) for each in found.segments) > 2
    done = rewrite(rewriting(found))
    assert groups_of(tmp_path, done.name) == 1
    footer = read_footer(pq.read_metadata(tmp_path / done.name).metadata)
    assert (footer.base, footer.end, footer.count) == (0, 20, 20)
    assert footer.oldest_tombstone is None
    assert done.count == 20


def groups_of(root, name):
    return pq.read_metadata(root / name).num_row_groups


def test_the_oldest_tombstone_of_a_segment_is_found(tmp_path):
    rows = [Row(b"a", b"", A_TIME + 5), Row(b"b", b"x"), Row(None, b"")]
    found = write_topic(tmp_path, [[*rows, *[Row(b"c", b"x")] * 7]])
    (segment,) = found.segments
    job = CollectKeysJob(
        topic=TOPIC,
        segments=(segment,),
        root=root_of(segment),
        scratch="s",
        bucket_count=1,
    )
    (facts,) = collect_keys(job).segments
    assert (facts.without_key, facts.oldest_tombstone) == (1, A_TIME + 5)
    assert key_bytes_of(TOPIC, segment) > 0


def test_a_job_that_fails_leaves_nothing(tmp_path):
    found = write_topic(tmp_path, ROWS)
    second = tmp_path / found.segments[1].object_name
    data = bytearray(second.read_bytes())
    data[20:80] = bytes(60)
    second.write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CorruptSegment, match="cannot be read"):
        rewrite(rewriting(found))
    assert sorted(tmp_path.rglob("*")) == before
    second.unlink()
    with pytest.raises(CorruptSegment, match="cannot be read"):
        rewrite(rewriting(found))
