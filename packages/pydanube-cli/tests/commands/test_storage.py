"""The state of a broker's storage, in words."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from pydanube.model.descriptions import (
    CopyState,
    DamagedSegment,
    Segment,
    SegmentsVerified,
    StorageDescription,
)
from pydanube.model.errors import ObjectsUnavailable
from pydanube_cli.commands import storage as cli
from pydanube_cli.commands.topics import copies_of

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


# Verification.

INTACT, DAMAGED, NONE = CopyState.INTACT, CopyState.DAMAGED, CopyState.NONE


def damaged(local, remote, name="default/a/1"):
    return DamagedSegment(
        object_name=name,
        base=0,
        end=1,
        byte_count=1024,
        local=local,
        remote=remote,
        problem="the local copy is missing",
    )


class Pages:
    """A client that answers with pages, or fails."""

    def __init__(self, *pages):
        self.pages = list(pages)
        self.requests = []

    @property
    def storage(self):
        return self

    def verify(self, topic, **options):
        self.requests.append((topic, options))
        page = self.pages.pop(0)
        if isinstance(page, BaseException):
            raise page
        return page

    def copy(self, store, **more):
        return self.verify(store, **more)


PAGE = SegmentsVerified(segment_count=2, byte_count=10, after="1/00000000000000000007")
LAST = SegmentsVerified(segment_count=1, byte_count=5, without_checksum=1)


def test_verification_asks_for_page_after_page():
    client = Pages(PAGE, LAST)
    result = cli.verify(lambda: nullcontext(client), None, rate="1KiB", repair=True)
    assert [options["after"] for _, options in client.requests] == ["", PAGE.after]
    assert [options["count"] for _, options in client.requests] == [True, False]
    assert all(options["bytes_per_s"] == 1024 for _, options in client.requests)
    assert all(options["repair"] for _, options in client.requests)
    assert (result.value["segments"], result.value["bytes_read"]) == (3, 15)
    assert result.exit_code == 0
    assert any("All copies are intact" in part for part in result.parts)


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), ObjectsUnavailable("away")], ids=["ctrl-c", "away"]
)
def test_interrupted_verification_says_how_to_continue(failure, capsys):
    client = Pages(PAGE, failure)
    with pytest.raises(type(failure)):
        cli.verify(lambda: nullcontext(client), "/default/a")
    told = capsys.readouterr().err
    assert told == f"To continue, repeat the command with --after {PAGE.after}\n"


def test_verification_that_fails_at_its_first_page_has_nothing_to_continue(capsys):
    with pytest.raises(ObjectsUnavailable):
        cli.verify(lambda: nullcontext(Pages(ObjectsUnavailable("away"))), None)
    assert capsys.readouterr().err == ""


def test_copying_ends_with_the_cluster_id():
    client = Pages(PAGE, LAST, SegmentsVerified(copied_count=1))
    result = cli.copy(lambda: nullcontext(client), "history")
    (store, first), (_, second), (_, last) = client.requests
    assert store == "history"
    assert (first["after"], second["after"]) == ("", PAGE.after)
    assert last == {"finish": True}
    assert (result.value["segments"], result.value["copied"]) == (3, 1)
    assert result.exit_code == 0


def test_copy_that_lacks_segments_is_not_finished():
    page = replace(LAST, damaged=(damaged(NONE, CopyState.MISSING),))
    client = Pages(page)
    result = cli.copy(lambda: nullcontext(client), "history")
    assert (len(client.requests), result.exit_code) == (1, 11)


def test_damage_has_an_exit_code_unless_it_was_repaired():
    repaired = damaged(CopyState.REPAIRED, INTACT)
    assert cli.exit_code_of_damage([]) == 0
    assert cli.exit_code_of_damage([repaired]) == 0
    assert cli.exit_code_of_damage([repaired, damaged(DAMAGED, INTACT)]) == 11


@pytest.mark.parametrize(
    ("local", "remote", "advice"),
    [
        (DAMAGED, INTACT, ["verify --repair"]),
        (INTACT, CopyState.MISSING, ["verify --repair"]),
        (DAMAGED, NONE, ["verify --repair --from"]),
        (NONE, CopyState.MISSING, ["verify --repair --from"]),
        (NONE, CopyState.UNKNOWN, ["storage.remote.url"]),
        (CopyState.REPAIRED, INTACT, []),
    ],
)
def test_advice_follows_from_the_copies_that_are_left(local, remote, advice):
    found = cli.advice_on([damaged(local, remote)])
    assert len(found) == len(advice)
    assert all(part in line for part, line in zip(advice, found, strict=True))
