import os

import pytest

from pydanube.model.errors import DirectoryLocked, InvalidConfig
from pydanube.servers.directory import hold_directory


def test_a_directory_belongs_to_one_broker_at_a_time(tmp_path):
    with (
        hold_directory(tmp_path / "data"),
        pytest.raises(DirectoryLocked, match=str(os.getpid())),
        hold_directory(tmp_path / "data"),
    ):
        pass


def test_a_directory_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with hold_directory(tmp_path / "data") as directory:
            assert directory.journal == tmp_path / "data" / "journal"


def test_what_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(InvalidConfig, match="cannot be used"),
        hold_directory(tmp_path / "file"),
    ):
        pass
