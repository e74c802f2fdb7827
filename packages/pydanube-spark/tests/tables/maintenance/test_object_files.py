"""A file has its name when it is whole, and never before."""

import pytest

from pydanube.model.errors import Unavailable
from pydanube_spark.tables.maintenance.object_files import (
    ObjectRoot,
    checksum_of,
    delete_file,
    new_file,
    open_file,
    open_scratch,
)


def root_of(path):
    for name in (".parts", "default/a"):
        (path / name).mkdir(parents=True)
    return ObjectRoot(path.as_uri())


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    directory = tmp_path / "with a space"
    root = root_of(directory)
    with new_file(root, "default/a/one") as file:
        file.write(b"123456789")
        assert not (directory / "default/a/one").exists()
    assert (directory / "default/a/one").read_bytes() == b"123456789"
    assert checksum_of(root.url_of("default/a/one")) == (0xE3069283, 9)
    with open_file(root.url_of("default/a/one")) as open_checked:
        assert open_checked.read() == b"123456789"
    assert not list((directory / ".parts").iterdir())
    delete_file(root.url_of("default/a/one"))
    delete_file(root.url_of("default/a/one"))
    with pytest.raises(FileNotFoundError):
        open_file(root.url_of("default/a/one"))


def test_nothing_is_left_of_a_file_that_is_not_finished(tmp_path):
    root = root_of(tmp_path)

    def write_half():
        with new_file(root, "default/a/one") as file:
            file.write(b"half")
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        write_half()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_started_broker_deletes_incomplete_files(tmp_path):
    root = root_of(tmp_path)

    def write():
        with new_file(root, "default/a/one") as file:
            file.write(b"x")
            [part] = (tmp_path / ".parts").iterdir()
            part.unlink()

    with pytest.raises(Unavailable, match="run maintenance again"):
        write()
    with pytest.raises(Unavailable, match="run maintenance again"):
        open_scratch(root.scratch_url("default,a,one"))
