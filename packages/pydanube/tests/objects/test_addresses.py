"""URLs and options of object stores."""

from pathlib import Path

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.objects.addresses import (
    locating_options,
    parse_object_url,
    parse_store_url,
    secrets_of,
    service_options,
)


@pytest.mark.parametrize(
    ("url", "service", "options"),
    [
        ("s3://logs", "s3", {"bucket": "logs", "root": "/"}),
        ("s3://logs/a/b/", "s3", {"bucket": "logs", "root": "/a/b"}),
        ("s3a://logs/a b", "s3", {"bucket": "logs", "root": "/a b"}),
        ("gs://logs/a", "gcs", {"bucket": "logs", "root": "/a"}),
        ("azblob://logs/a", "azblob", {"container": "logs", "root": "/a"}),
        (
            "redis://host:7000/a",
            "redis",
            {"endpoint": "redis://host:7000", "root": "/a"},
        ),
        ("rediss://host", "redis", {"endpoint": "rediss://host", "root": "/"}),
        ("webdav:///a", "webdav", {"root": "/a"}),
    ],
)
def test_the_url_stands_for_options(url, service, options):
    address = parse_store_url(url)
    assert address.service == service
    assert service_options(address, {}) == options


def test_the_url_of_a_store_is_shown_without_a_slash_at_its_end():
    assert parse_store_url("s3://logs/a//").url == "s3://logs/a"
    assert parse_store_url("s3://logs/").url == "s3://logs"


def test_the_path_of_an_object_is_literal_except_in_file_urls():
    assert parse_object_url("s3://logs/a%20b?c#d").path == "a%20b?c#d"
    assert parse_object_url("fs:///a%20b").local_path == Path("/a%20b")
    assert parse_object_url("file:///a%20b").local_path == Path("/a b")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("logs", "not the URL of an object store"),
        ("", "not the URL of an object store"),
        ("S3://logs", "not the URL of an object store"),
        ("s3:///logs", "the bucket is missing; expected s3://BUCKET/PREFIX"),
        ("azblob://", "the container is missing"),
        ("fs://data/objects", "expected fs:///data/…"),
        ("webdav://host/a", "expected webdav:///PREFIX"),
        ("s3://logs/a?region=x", "give options as options"),
        ("s3://logs?region=x", "give options as options"),
    ],
)
def test_malformed_urls_are_refused(url, message):
    with pytest.raises(InvalidConfig, match=message.replace("?", r"\?")):
        parse_store_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:hush@logs/a",
        "redis://:hush@host:1/a",
        "redis://hush@host",
        "S3://hush@x",
        "s3://hush@logs?x",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_shown(url):
    with pytest.raises(InvalidConfig, match="contains credentials") as refused:
        parse_store_url(url)
    assert "hush" not in str(refused.value)


def test_an_option_may_be_in_a_file(tmp_path):
    (tmp_path / "key").write_text("hush\n")
    address = parse_store_url("s3://logs")
    given = {"secret_access_key_file": str(tmp_path / "key"), "region": "x"}
    assert service_options(address, given) == {
        "bucket": "logs",
        "root": "/",
        "region": "x",
        "secret_access_key": "hush",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket": "other"}, "'bucket' is part of the URL"),
        ({"root_file": "x"}, "'root_file' is part of the URL"),
        ({"region": "x", "region_file": "x"}, "both 'region' and 'region_file'"),
        ({"region_file": "/nowhere"}, "'/nowhere' .* cannot be read: No such file"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    with pytest.raises(InvalidConfig, match=message):
        service_options(parse_store_url("s3://logs"), options)


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 70_000, b"\xff\xfe"])
def test_files_of_options_are_checked(tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InvalidConfig, match="the option 'secret_access_key_file'"):
        service_options(
            parse_store_url("s3://logs"),
            {"secret_access_key_file": str(tmp_path / "key")},
        )


def test_secret_options_are_kept_apart():
    given = {
        "region": "x",
        "endpoint": "http://host",
        "secret_access_key": "hush",
        "access_key_id": "AKIA",
        "session_token": "",
        "password": "pass",
        "sas_token": "sv=1",
        "credential": "{}",
        "password_file": "/run/password",
        "credential_path": "/etc/danube/key.json",
        "user": "danube",
    }
    assert locating_options(given) == {"region": "x", "endpoint": "http://host"}
    assert secrets_of(given) == {
        *("hush", "AKIA", "pass", "sv=1", "{}"),
        "/etc/danube/key.json",
    }
