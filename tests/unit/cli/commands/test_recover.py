"""`danube recover` shows what it found, and writes only if told to."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from pydanube.cli.main import app
from support.directories import contents_of, publish, serving


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
