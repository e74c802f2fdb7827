"""The inspection of journal files and segments."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pydanube.model.errors import CorruptSegment
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.wire.files.journal_format import (
    Batch,
    FileHeader,
    SnapshotEnd,
    TopicOpened,
    encode_entry,
)
from pydanube.wire.files.segment_format import SegmentIdentity
from pydanube_broker.storage.segments.segments import encode_segment
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.main import app
from support.fakes.batches import frame_of

TOPIC = "/default/orders"


def stamped(base, *payloads):
    frame = frame_of(list(payloads))
    frame.stamp(Offset(base), Epoch(1))
    return frame


def journal_bytes(*, is_synced):
    """Return a journal file with three batches, and the position of each entry."""
    header = FileHeader(1, bytes(range(16)))
    entries = [
        SnapshotEnd(0),
        TopicOpened(
            topic_id=TopicId(1),
            name=TOPIC,
            epoch=Epoch(1),
            end_offset=Offset(0),
            sealed_offset=Offset(0),
        ),
        Batch(TopicId(1), stamped(0, b"a", b"b")),
        Batch(TopicId(1), stamped(2, b"c")),
        Batch(TopicId(1), stamped(3, b"d")),
    ]
    data, positions = bytearray(header.encode()), []
    for entry in entries:
        positions.append(len(data))
        buffers, _ = encode_entry(
            entry,
            position=len(data),
            synced=len(data) if is_synced else 0,
            seed=header.seed,
        )
        data += b"".join(buffers)
    return data, positions


def inspect(tmp_path, data, *options):
    path = tmp_path / "00000000000000000001.journal"
    path.write_bytes(data)
    return CliRunner().invoke(app, ["inspect", "journal", str(path), *options])


def test_valid_journal_is_listed(tmp_path):
    data, _ = journal_bytes(is_synced=True)
    result = inspect(tmp_path, data)
    assert result.exit_code == 0
    assert f"name={TOPIC}" in result.stdout
    assert "0\u20131" in result.stdout
    assert result.stdout.endswith("\nWhole: 6 entries.\n\n")


def test_torn_end_is_not_damage(tmp_path):
    data, positions = journal_bytes(is_synced=True)
    result = inspect(tmp_path, data[:-5])
    assert result.exit_code == 0
    assert f"Torn end at position {positions[-1]}" in result.stdout


def test_invalid_place_before_a_synced_entry_is_damage(tmp_path):
    data, positions = journal_bytes(is_synced=True)
    data[positions[3] + 60] ^= 1
    result = inspect(tmp_path, data)
    assert result.exit_code == 11
    assert f"Damaged at position {positions[3]}" in result.stdout
    assert f"is damaged at position {positions[3]}" in result.stderr


def test_all_files_of_a_journal_are_verified(tmp_path):
    data, _ = journal_bytes(is_synced=True)
    (tmp_path / "00000000000000000002.journal").write_bytes(data)
    whole = inspect(tmp_path, data)
    path = tmp_path / "00000000000000000001.journal"

    both = CliRunner().invoke(app, ["inspect", "journal", str(tmp_path)])
    assert both.exit_code == 0
    assert both.stdout.startswith(whole.stdout)
    assert both.stdout.count("Whole: 6 entries.") == 2

    path.write_bytes(data[:-5])
    torn = CliRunner().invoke(app, ["inspect", "journal", str(tmp_path)])
    assert torn.exit_code == 11
    assert str(path) in torn.stderr


def test_a_directory_without_a_journal_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["inspect", "journal", str(tmp_path)])
    assert result.exit_code == 2
    assert "no journal file" in result.stderr


def test_json_is_one_object_per_line_with_the_verdict_last(tmp_path):
    data, positions = journal_bytes(is_synced=True)
    *entries, verdict = map(
        json.loads, inspect(tmp_path, data[:-5], "--format", "json").stdout.splitlines()
    )
    assert [each["kind"] for each in entries] == [
        "file_header",
        "snapshot_end",
        "topic_opened",
        "batch",
        "batch",
        "damaged",
    ]
    assert entries[3]["details"]["end"] == 2
    assert verdict["verdict"] == "torn"
    assert verdict["position"] == positions[-1]
    assert verdict["bad_bytes"] == len(data) - 5 - positions[-1]


def test_other_file_is_not_a_journal(tmp_path):
    result = inspect(tmp_path, b"something else" * 10)
    assert result.exit_code == 11
    assert result.stderr.startswith("error: ")


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path):
    result = CliRunner().invoke(app, ["inspect", "journal", str(tmp_path / "none")])
    assert result.exit_code == 2


@pytest.fixture
def segment(tmp_path):
    identity = SegmentIdentity(topic=TOPIC, topic_id=TopicId(1), epoch=1)
    frames = [stamped(5, b"a", b"b"), stamped(7, b"c")]
    path = tmp_path / "segment.parquet"
    path.write_bytes(encode_segment(frames, identity, row_group_bytes=1024))
    return str(path)


def test_a_segment_is_described(segment):
    result = CliRunner().invoke(app, ["inspect", "segment", segment])
    assert result.exit_code == 0
    assert TOPIC in result.stdout
    assert "5\u20137" in result.stdout
    assert "payload" in result.stdout


def test_a_damaged_segment_has_an_exit_code_of_its_own(segment):
    content = bytearray(Path(segment).read_bytes())
    with pq.ParquetFile(segment) as file:
        chunk = file.metadata.row_group(0).column(3)
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    Path(segment).write_bytes(content)
    result = CliRunner().invoke(app, ["inspect", "segment", segment])
    assert result.exit_code == exit_code_of(CorruptSegment)
    assert "Row group 0 is damaged: column payload" in result.stdout


def test_segment_is_described_as_json(segment):
    result = CliRunner().invoke(
        app, ["inspect", "segment", segment, "--format", "json"]
    )
    described = json.loads(result.stdout)
    assert described["count"] == 3
    assert described["metadata"]["danube.base_offset"] == "5"
    assert [(g["base"], g["end"]) for g in described["row_groups"]] == [(5, 8)]


def test_other_file_is_not_a_segment(tmp_path):
    path = tmp_path / "segment.parquet"
    path.write_bytes(b"PAR1 no, not really")
    result = CliRunner().invoke(app, ["inspect", "segment", str(path)])
    assert result.exit_code == 11
