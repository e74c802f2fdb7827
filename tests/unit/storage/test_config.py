import msgspec
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.storage.config import JournalConfig, RemoteConfig, StorageConfig


def test_the_defaults_are_valid():
    plain = msgspec.to_builtins(StorageConfig())
    assert msgspec.convert(plain, StorageConfig) == StorageConfig()
    assert StorageConfig().journal == JournalConfig()


@pytest.mark.parametrize(
    "settings",
    [
        {"seal_bytes": 0},
        {"seal_pace": -1},
        {"seal_interval_s": 0},
        {"journal": {"file_bytes_max": 10}},
        {"journal": {"file_bytes": 4096}},
    ],
)
def test_invalid_setting_is_refused_with_its_path(settings):
    with pytest.raises(msgspec.ValidationError, match=r"\$"):
        msgspec.convert(settings, StorageConfig)


@pytest.mark.parametrize(
    ("remote", "problem"),
    [
        ({"url": "bucket/prefix"}, "expected a URL such as s3://bucket/prefix"),
        ({"url": "s3:bucket"}, "expected a URL"),
        ({"url": "S 3://bucket"}, "expected a URL"),
        ({"url": "s3://[bucket"}, "not a valid URL"),
        ({"url": "s3://key:secret@bucket"}, "must not contain credentials"),
        ({"url": "s3://bucket?secret=1"}, "must not contain credentials"),
        ({"options": {"region": "eu"}}, "the url of the store is not"),
    ],
)
def test_remote_store_that_cannot_be_used_is_refused(remote, problem):
    with pytest.raises(InvalidConfig, match=problem) as raised:
        RemoteConfig(**remote)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["s3://bucket", "memory:///", "fs:///a/b", "x-y+1.0://h:1/"]
)
def test_url_of_a_remote_store_is_accepted(url):
    assert RemoteConfig(url=url, options={"region": "eu"}).url == url
