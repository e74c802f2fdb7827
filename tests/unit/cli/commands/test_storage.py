"""The state of a broker's storage, in words."""

from dataclasses import replace

import pytest

from pydanube.cli.commands import storage as cli
from pydanube.cli.commands.topics import copies_of
from pydanube.model.descriptions import Segment, StorageDescription

BUSY = StorageDescription(
    remote_url="s3://bucket/a",
    local_bytes=3072,
    local_bytes_max=5120,
    backlog_segments=1200,
    backlog_bytes=2048,
    backlog_age_s=7200,
    uploads=10,
    uploaded_bytes=4096,
    upload_failures=3,
    evictions=2,
    evicted_bytes=100,
    journal_kind="object",
    journal_url="s3://bucket/a",
    journal_bytes=1024,
)
SEGMENT = Segment(
    base=0,
    end=1,
    epoch=1,
    count=1,
    byte_count=1,
    object_name="a",
    first_publish_time=0,
    last_publish_time=0,
    sealed_at=0,
    url="file:///a",
)


def test_backlog_uploads_and_evictions_are_shown():
    assert dict(cli._fields(BUSY)) == {
        "Journal": "1.0 KiB in s3://bucket/a",
        "Remote store": "s3://bucket/a",
        "Local segments": "3.0 KiB of 5.0 KiB",
        "Not uploaded": "1,200 segments, 2.0 KiB, the oldest for 2h",
        "Uploads": "10 segments, 4.0 KiB",
        "Failed uploads": 3,
        "Evictions": "2 segments, 100 B",
        "Publishing": "accepted",
    }


def test_empty_backlog_and_refused_publishing_are_shown():
    shown = dict(cli._fields(replace(BUSY, backlog_segments=0, is_refusing=True)))
    assert (shown["Not uploaded"], shown["Publishing"]) == ("nothing", "refused")


def test_storage_without_a_remote_store_has_only_a_size():
    local = StorageDescription(remote_url="", local_bytes=3072)
    assert dict(cli._fields(local)) == {
        "Journal": "0 B in the data directory",
        "Remote store": "none",
        "Local segments": "3.0 KiB",
    }


@pytest.mark.parametrize(
    ("url", "remote_url", "copies"),
    [
        ("file:///a", "", "local"),
        ("file:///a", "s3://bucket/a", "local, remote"),
        ("s3://bucket/a", "s3://bucket/a", "remote"),
    ],
)
def test_copies_of_a_segment_follow_from_its_urls(url, remote_url, copies):
    assert copies_of(replace(SEGMENT, url=url, remote_url=remote_url)) == copies
