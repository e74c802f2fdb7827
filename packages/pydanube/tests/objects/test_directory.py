import errno
import os

import pytest

from pydanube.model.errors import NotFound, ObjectsUnavailable
from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.opening import open_objects


async def test_incomplete_objects_of_a_crash_are_removed(tmp_path):
    objects = DirectoryObjects(tmp_path)
    await objects.put("a/one", b"abc")
    (tmp_path / ".parts" / "a,two").write_bytes(b"ab")
    objects = DirectoryObjects(tmp_path)
    assert await objects.names("") == ["a/one"]
    assert list((tmp_path / ".parts").iterdir()) == []


async def test_objects_that_others_are_storing_are_not_removed(tmp_path):
    url = (tmp_path / "shared").as_uri()
    open_objects(url)
    parts = tmp_path / "shared" / ".parts"
    (parts / "being stored").write_bytes(b"ab")
    (parts / "left by a crash").write_bytes(b"ab")
    os.utime(parts / "left by a crash", (0, 0))
    open_objects(url)
    assert [each.name for each in parts.iterdir()] == ["being stored"]


async def test_a_name_does_not_lead_out_of_the_directory(tmp_path):
    objects = DirectoryObjects(tmp_path / "objects")
    for name in ("../one", "a/../../one", "/etc/passwd"):
        with pytest.raises(NotFound):
            await objects.put(name, b"abc")


async def test_an_object_that_cannot_be_stored_is_reported(tmp_path):
    objects = DirectoryObjects(tmp_path)
    await objects.put("a", b"a file where a directory is needed")
    with pytest.raises(ObjectsUnavailable):
        await objects.put("a/one", b"abc")


async def test_failed_object_takes_no_space(tmp_path):
    objects = DirectoryObjects(tmp_path)
    (tmp_path / "one" / "two").mkdir(parents=True)
    with pytest.raises(ObjectsUnavailable):
        await objects.put("one", b"a directory is in its place")
    assert list((tmp_path / ".parts").iterdir()) == []


async def test_new_object_that_is_not_stored_takes_no_space_once_discarded(tmp_path):
    objects = DirectoryObjects(tmp_path)
    (tmp_path / "one" / "two").mkdir(parents=True)
    new = objects.new_object()
    with new.writing() as file:
        file.write(b"abc")
    assert (tmp_path / ".parts" / new.path.name).stat().st_mode & 0o077 == 0
    with pytest.raises(ObjectsUnavailable):
        await objects.put_new("one", new)
    new.discard()
    assert list((tmp_path / ".parts").iterdir()) == []


def test_new_object_that_is_discarded_while_it_is_written_takes_no_space(
    tmp_path, monkeypatch
):
    new = DirectoryObjects(tmp_path).new_object()
    # The thread that writes it begins after the caller has given up.
    new.discard()
    # A broker that stops does not wait for a disk that nobody needs.
    monkeypatch.delattr(os, "fsync")
    with new.writing() as file:
        file.write(b"abc")
    assert list((tmp_path / ".parts").iterdir()) == []


def test_new_object_that_cannot_be_removed_does_not_replace_another_error(tmp_path):
    objects = DirectoryObjects(tmp_path)
    new = objects.new_object()
    new.path.mkdir()
    new.discard()
    with pytest.raises(ObjectsUnavailable), new.writing():
        pass


def test_new_object_that_does_not_reach_the_disk_is_reported(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.EIO, "the disk has lost a write")

    new = DirectoryObjects(tmp_path).new_object()
    # Before it is read again, and by the file that was open while it was written.
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ObjectsUnavailable, match="lost a write"), new.writing() as file:
        file.write(b"abc")
    assert list((tmp_path / ".parts").iterdir()) == []


def test_new_object_that_cannot_be_read_again_is_reported(tmp_path):
    new = DirectoryObjects(tmp_path).new_object()
    with new.writing() as file:
        file.write(b"abc")
    new.discard()
    with pytest.raises(ObjectsUnavailable), new.reading():
        pass


def test_new_object_that_cannot_be_written_is_reported(tmp_path):
    objects = DirectoryObjects(tmp_path)
    (tmp_path / ".parts").rmdir()
    with pytest.raises(ObjectsUnavailable), objects.new_object().writing():
        pass


def test_the_url_is_that_of_a_file(tmp_path):
    objects = DirectoryObjects(tmp_path)
    assert objects.url("a/one") == (tmp_path / "a/one").as_uri()


async def test_an_object_that_gets_shorter_while_it_is_read_does_not_end_the_process(
    tmp_path,
):
    objects = DirectoryObjects(tmp_path)
    await objects.put("a/one", bytes(1 << 20))
    with objects.open("a/one") as file:
        # Reading after the end of a mapped file would raise a signal.
        (tmp_path / "a" / "one").write_bytes(b"")
        file.seek(1 << 19)
        assert file.read(1 << 10) == b""
