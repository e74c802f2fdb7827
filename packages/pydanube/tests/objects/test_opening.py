"""Stores by URL."""

import pytest

from pydanube.model.errors import InvalidConfig, NotFound
from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.memory import MemoryObjects
from pydanube.objects.opening import open_objects, open_url

S3 = {
    "region": "us-east-1",
    "access_key_id": "AKIAHUSH",
    "secret_access_key": "hushhush",
    "endpoint": "http://127.0.0.1:9",
}


async def test_a_directory_needs_no_opendal(tmp_path):
    objects = open_objects(f"fs://{tmp_path}/a b")
    assert isinstance(objects, DirectoryObjects)
    await objects.put("x/y", b"abc")
    assert (tmp_path / "a b" / "x" / "y").read_bytes() == b"abc"
    with open_url(objects.url("x/y")) as file:
        assert file.read() == b"abc"
    with open_url(f"fs://{tmp_path}/a b/x/y") as file:
        assert file.read() == b"abc"
    with pytest.raises(FileNotFoundError):
        open_url(f"fs://{tmp_path}/none")


def test_memory_is_open_to_its_own_store_only():
    assert isinstance(open_objects("memory://"), MemoryObjects)
    with pytest.raises(InvalidConfig, match="only that store can read it"):
        open_url("memory:///a")


def test_a_store_shows_its_url_and_no_options():
    objects = open_objects("s3://logs/a b/", S3)
    assert repr(objects) == "OpendalObjects('s3://logs/a b')"
    assert objects.url("ns/é%20") == "s3://logs/a b/ns/é%20"
    assert objects.supports_listing
    assert objects.supports_put_if_absent


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("nosuch:///a", {}, "scheme is not registered"),
        ("s3://logs", {"acces_key_id": "hush"}, "did you mean 'access_key_id'"),
        ("azblob://logs", {}, "endpoint is empty"),
        (
            "azblob://logs",
            {
                "endpoint": "http://h",
                "account_name": "a",
                "account_key": "hush hush",
            },
            "invalid account_key",
        ),
        ("fs:///tmp", {"region": "hush"}, "has no options; remove region"),
        ("memory://", {"region": "hush"}, "has no options; remove region"),
    ],
)
def test_invalid_options_are_refused_and_not_shown(url, options, message):
    with pytest.raises(InvalidConfig, match=message) as refused:
        open_objects(url, options)
    assert "hush" not in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize(
    "limits",
    [
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"retries": -1},
        {"concurrency": 0},
    ],
)
def test_limits_are_checked(limits):
    with pytest.raises(InvalidConfig, match="the object store"):
        open_objects("memory://", **limits)


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/../b", "./a", " a", "a\0b"])
async def test_names_that_the_network_would_change_are_refused(name):
    with pytest.raises(NotFound, match="not a valid name"):
        await open_objects("s3://logs", S3).put(name, b"x")
