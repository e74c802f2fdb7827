"""The contract of all implementations of Files."""

import pytest

from pydanube_broker.storage.files import DirectoryFiles, MemoryFiles
from support.fakes.recording_files import RecordingFiles


@pytest.fixture(params=["memory", "directory", "recording"])
def files(request, tmp_path):
    match request.param:
        case "memory":
            return MemoryFiles()
        case "directory":
            return DirectoryFiles(tmp_path / "made" / "here")
        case _:
            return RecordingFiles()


def test_appended_bytes_are_read_back(files):
    file = files.create("one")
    file.write([b"ab", bytearray(b"cd"), memoryview(b"ef")])
    file.write([])
    file.write([b"", b"g"])
    file.sync()
    assert bytes(files.map("one")) == b"abcdefg"
    file.close()


def test_a_file_can_be_opened_again_to_grow(files):
    file = files.create("one")
    file.write([b"ab"])
    file.close()
    file = files.append("one")
    file.write([b"cd"])
    file.close()
    assert bytes(files.map("one")) == b"abcd"


def test_more_buffers_than_one_call_takes_are_all_written(files):
    file = files.create("one")
    buffers = [b"%d," % at for at in range(5000)]
    file.write(buffers)
    file.close()
    assert bytes(files.map("one")) == b"".join(buffers)


def test_a_file_can_be_cut_off_and_grow_again(files):
    file = files.create("one")
    file.write([b"abcdef"])
    file.truncate(2)
    file.write([b"x"])
    file.close()
    assert bytes(files.map("one")) == b"abx"


def test_an_empty_file_can_be_read(files):
    files.create("one").close()
    assert bytes(files.map("one")) == b""


def test_names_are_sorted(files):
    for name in ("b", "c", "a"):
        files.create(name).close()
    files.sync_directory()
    assert files.names() == ["a", "b", "c"]


def test_mapped_content_stays_readable(files):
    file = files.create("one")
    file.write([b"abc"])
    view = files.map("one")
    file.write([b"def"])
    files.remove("one")
    file.close()
    assert bytes(view) == b"abc"
    assert view.readonly
    assert files.names() == []
