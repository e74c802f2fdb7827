import asyncio
import logging
import os
import stat

import pytest

from pydanube.model.errors import DirectoryLocked, DirectoryReplaced, InvalidConfig
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.servers.directories.directory import (
    hold_directory,
    watching_directory,
)
from pydanube_broker.storage.files import DirectoryFiles


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_directory_belongs_to_one_broker_at_a_time(tmp_path):
    with (
        hold_directory(tmp_path / "data"),
        pytest.raises(DirectoryLocked, match=str(os.getpid())),
        hold_directory(tmp_path / "data"),
    ):
        pass


def test_directory_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with hold_directory(tmp_path / "data") as directory:
            assert directory.journal == tmp_path / "data" / "journal"


def test_path_that_is_not_a_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(InvalidConfig, match="cannot be used"),
        hold_directory(tmp_path / "file"),
    ):
        pass


def test_directory_stays_locked_when_its_lock_file_is_removed(tmp_path):
    with hold_directory(tmp_path / "data") as directory:
        directory.lock.unlink()
        with pytest.raises(DirectoryLocked), hold_directory(tmp_path / "data"):
            pass


def test_symbolic_link_as_lock_file_is_refused_and_its_target_is_kept(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "LOCK").symlink_to(target)

    with (
        pytest.raises(InvalidConfig, match="LOCK cannot be used"),
        hold_directory(tmp_path / "data"),
    ):
        pass

    assert target.read_text() == "precious"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_lock_file_that_is_no_regular_file_is_refused(tmp_path, make):
    make(tmp_path / "LOCK")
    with pytest.raises(InvalidConfig, match="LOCK"), hold_directory(tmp_path):
        pass


def test_broker_notices_that_its_directory_was_replaced(tmp_path):
    with hold_directory(tmp_path / "data") as directory:
        directory.check_in_place()
        directory.path.rename(tmp_path / "moved")
        with pytest.raises(DirectoryReplaced, match="is gone"):
            directory.check_in_place()
        directory.path.mkdir()
        with pytest.raises(DirectoryReplaced, match="replaced by another"):
            directory.check_in_place()


@pytest.mark.slow
async def test_watching_a_directory_ends_its_body_when_it_is_replaced(tmp_path):
    async def run():
        with hold_directory(tmp_path / "data") as directory:
            async with watching_directory(directory):
                directory.path.rename(tmp_path / "moved")
                await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(DirectoryReplaced)


async def test_new_files_are_accessible_to_their_owner_only(tmp_path):
    umask = os.umask(0)
    try:
        with hold_directory(tmp_path / "data") as directory:
            files = DirectoryFiles(directory.journal)
            files.create("a").close()
            objects = DirectoryObjects(directory.objects)
            await objects.put("default/t/one", b"abc")

            async def open_store():
                async with open_sqlite(directory.metadata):
                    assert_private(tmp_path / "data")

            await open_store()
    finally:
        os.umask(umask)


def assert_private(directory):
    found = [directory, *directory.rglob("*")]
    assert len(found) > 10
    assert {mode_of(path) for path in found if path.is_dir()} == {0o700}
    assert {mode_of(path) for path in found if path.is_file()} == {0o600}


def test_permissions_of_others_are_removed_at_the_start(tmp_path, caplog):
    data = tmp_path / "data"
    (data / "objects" / "default").mkdir(parents=True)
    (data / "objects" / "default" / "segment").write_text("")
    for path in (data, *data.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (data / "link").symlink_to(outside)

    with caplog.at_level(logging.INFO), hold_directory(data):
        assert mode_of(data) == mode_of(data / "objects" / "default") == 0o700
        assert mode_of(data / "objects" / "default" / "segment") == 0o600
        assert mode_of(outside) == 0o644

    assert "removed their permissions from 4 files and directories" in caplog.text
