"""Brokers open the data directories of all versions."""

import asyncio
import tarfile
from pathlib import Path

import pytest

from support.fakes.stored_data import verify, write_archive
from support.servers.processes import BrokerProcess

pytestmark = pytest.mark.e2e

ARCHIVES = sorted((Path(__file__).parents[1] / "corpora/data_directories").iterdir())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_data_of_each_version_is_served(archive, tmp_path):
    open_and_verify(archive, tmp_path)


@pytest.mark.slow
def test_the_present_version_writes_data_that_it_serves(tmp_path):
    archive = tmp_path / "data.tar.gz"
    write_archive(archive)
    open_and_verify(archive, tmp_path)


def open_and_verify(path, directory):
    with tarfile.open(path) as archive:
        archive.extractall(directory, filter="data")
    with BrokerProcess(directory / "data") as broker:
        asyncio.run(verify(broker.url))
