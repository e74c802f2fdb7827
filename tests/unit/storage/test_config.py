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
        ({"url": "bucket/prefix"}, "url: 'bucket/prefix' is not the URL"),
        ({"url": "s3://"}, "url: .*the bucket is missing"),
        ({"url": "s3://key:hunter2@bucket"}, "url: .*contains credentials"),
        ({"url": "s3://bucket/a?b=c"}, "url: .*give options as options"),
        ({"url": "memory:///"}, "a restart would lose"),
        ({"options": {"region": "eu"}}, "the url of the store is not"),
    ],
)
def test_remote_store_that_cannot_be_used_is_refused(remote, problem):
    with pytest.raises(InvalidConfig, match=problem) as raised:
        RemoteConfig(**remote)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["s3://bucket", "fs:///a/b", "webdav:///prefix"])
def test_url_of_a_remote_store_is_accepted(url):
    assert RemoteConfig(url=url, options={"region": "eu"}).url == url
