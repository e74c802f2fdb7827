"""Only stores that the settings name are opened."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_broker.broker.named_stores import NamedStores
from pydanube_broker.storage.config import NamedStoreConfig


async def test_store_is_opened_by_its_name(tmp_path):
    config = NamedStoreConfig(url=f"fs://{tmp_path}/backups")
    objects = await NamedStores({"backups": config}).open("backups")
    await objects.put("a", b"1")
    assert (tmp_path / "backups" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["", "backup", "fs://{}/x", "backups/../x"])
async def test_what_is_not_a_name_is_refused_and_opens_nothing(tmp_path, name):
    config = NamedStoreConfig(url=f"fs://{tmp_path}/backups")
    with pytest.raises(InvalidRequest, match="they name backups"):
        await NamedStores({"backups": config}).open(name.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_a_similar_name_is_suggested():
    config = NamedStoreConfig(url="fs:///backups")
    with pytest.raises(InvalidRequest, match="did you mean 'backups'"):
        await NamedStores({"backups": config}).open("backup")


async def test_directory_that_cannot_be_created_is_said(tmp_path):
    (tmp_path / "file").touch()
    config = NamedStoreConfig(url=f"fs://{tmp_path}/file")
    with pytest.raises(InvalidConfig, match="cannot open the object store 'backups'"):
        await NamedStores({"backups": config}).open("backups")
