import errno
import resource
from pathlib import Path

import pytest

from pydanube_broker.storage.files import DirectoryFiles


def test_a_full_disk_is_reported():
    file = DirectoryFiles(Path("/dev")).append("full")
    with pytest.raises(OSError, match="No space") as caught:
        file.write([b"abc"])
    assert caught.value.errno == errno.ENOSPC
    file.close()


def test_partial_write_is_continued(tmp_path):
    files = DirectoryFiles(tmp_path)
    file = files.create("one")
    buffers = [b"a" * 600, b"b" * 600, b"c" * 600]
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        # The first call writes as much as fits; the next one is refused.
        with pytest.raises(OSError, match="too large"):
            file.write(buffers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert bytes(files.map("one")) == b"".join(buffers)[:1000]
    file.close()


def test_directories_are_not_files(tmp_path):
    (tmp_path / "sub").mkdir()
    assert DirectoryFiles(tmp_path).names() == []


def test_a_file_is_not_created_over_another(tmp_path):
    files = DirectoryFiles(tmp_path)
    files.create("one").close()
    with pytest.raises(FileExistsError):
        files.create("one")


def test_space_is_reserved_after_the_synced_end_and_freed(tmp_path):
    files = DirectoryFiles(tmp_path, reserve_bytes=4096)
    file = files.create("one")
    file.write([b"head"])
    # A crash must not leave zeros where the beginning of the file should be.
    assert bytes(files.map("one")) == b"head"
    file.sync()
    file.write([b"more"])
    assert bytes(files.map("one")) == b"headmore" + bytes(4096 - 4)
    file.write([b"x" * 5000])
    assert bytes(files.map("one")).rstrip(b"\0") == b"headmore" + b"x" * 5000
    file.truncate(6)
    assert bytes(files.map("one")) == b"headmo"
    file.write([b"!"])
    file.close()
    assert bytes(files.map("one")) == b"headmo!"


def test_files_are_written_if_no_space_can_be_reserved(tmp_path):
    files = DirectoryFiles(tmp_path, reserve_bytes=1024 * 1024)
    file = files.create("one")
    file.write([b"head"])
    file.sync()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        file.write([b"more"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert bytes(files.map("one")) == b"headmore"
    file.close()
