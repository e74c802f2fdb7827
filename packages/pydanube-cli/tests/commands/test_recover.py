"""`danube recover` shows what it found, and writes only if told to."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from pydanube_cli.main import app
from support.fakes.directories import contents_of, publish, serving


@pytest.fixture
def data(tmp_path):
    """A directory without its metadata store."""

    async def make():
        async with serving(tmp_path / "data") as client:
            await publish(client, "/default/t", b"0", b"1")

    asyncio.run(make())
    (tmp_path / "data" / "metadata.sqlite").unlink()
    return tmp_path / "data"


def run(data, *flags):
    return CliRunner().invoke(app, ["recover", "--data-dir", str(data), *flags])


@pytest.mark.slow
def test_directory_is_shown_and_recovered(data):
    before = contents_of(data)
    shown = run(data, "--dry-run")
    assert shown.exit_code == 0
    assert "danube recover --from-segments" in shown.stdout
    assert "/default/t" in shown.stdout
    asked = run(data, "--from-segments")
    assert asked.exit_code == 2
    assert "--yes" in asked.stderr
    assert contents_of(data) == before
    done = run(data, "--from-segments", "--yes", "--format", "json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["written"] is True
    assert answer["topics"][0]["next_offset"] == 2
    assert "nothing to recover" in run(data).stdout


def test_other_directory_is_not_a_data_directory(tmp_path):
    refused = run(tmp_path)
    assert refused.exit_code == 3
    assert "is not a broker's data directory" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_metadata_in_etcd_are_not_recovered(data, monkeypatch):
    monkeypatch.setenv("DANUBE_METADATA__KIND", "etcd")
    monkeypatch.setenv("DANUBE_METADATA__ETCD__ENDPOINTS", "http://127.0.0.1:1")
    refused = run(data, "--from-segments", "--yes")
    assert refused.exit_code == 2
    assert "restore etcd from a snapshot" in " ".join(refused.stderr.split())


async def until_sealed(client, topic, offset):
    while (await client.storage.segments(topic)).sealed_offset < offset:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.fixture
def data_without_metadata(tmp_path):
    """A directory without its metadata store, with two segments of one topic."""
    sealing = {"storage__seal_age_s": 0.0, "storage__seal_interval_s": 0.001}

    async def make():
        async with serving(tmp_path / "data", **sealing) as client:
            for end in (1, 2):
                await publish(client, "/default/t", b"x")
                async with asyncio.timeout(60):
                    await until_sealed(client, "/default/t", end)

    asyncio.run(make())
    data = tmp_path / "data"
    (data / "metadata.sqlite").unlink()
    return data


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_beginning_of_a_rebuilt_topic_is_shown(data_without_metadata, lost):
    segments = sorted((data_without_metadata / "objects/default/t").glob("*.parquet"))
    for path in segments[:lost]:
        path.unlink()
    shown = run(data_without_metadata, "--dry-run")
    assert f"/default/t begins at offset {lost}: earlier messages" in shown.stdout
