import msgspec
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.storage.config import (
    JournalConfig,
    ObjectJournalConfig,
    RedisJournalConfig,
    RemoteConfig,
    StorageConfig,
)


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


REMOTE = RemoteConfig(url="s3://bucket/a")
REDIS = RedisJournalConfig(url="redis://localhost:6379/a", bytes_max=1)


@pytest.mark.parametrize(
    ("journal", "remote", "problem"),
    [
        ({"kind": "object"}, RemoteConfig(), "needs a remote object store"),
        ({"kind": "shelf"}, RemoteConfig(), "needs a remote object store"),
        ({"kind": "redis"}, REMOTE, "journal.redis.url: "),
        (
            {"kind": "object", "object": ObjectJournalConfig(bytes_max=1)},
            REMOTE,
            "journal.object.bytes_max: expected at least journal_bytes_max",
        ),
        ({"kind": "redis", "redis": REDIS}, REMOTE, "journal.redis.bytes_max: "),
    ],
)
def test_journal_that_lacks_a_setting_is_refused(journal, remote, problem):
    with pytest.raises(InvalidConfig, match=problem):
        StorageConfig(journal=JournalConfig(**journal), remote=remote)


def test_journal_has_the_store_of_segments_or_one_of_its_own():
    own = ObjectJournalConfig(url="s3://journal")
    for journal, url in (
        (JournalConfig(), ""),
        (JournalConfig(kind="object"), "s3://bucket/a"),
        (JournalConfig(kind="object", object=own), "s3://journal"),
        (JournalConfig(kind="shelf"), "shelf:"),
    ):
        assert StorageConfig(journal=journal, remote=REMOTE).journal_url == url
