"""The system that `danube up --init` writes is whole, and overwrites nothing."""

from __future__ import annotations

import pytest

from pydanube.model.errors import AlreadyExists
from pydanube_cli.development.example import FILES, write_example
from pydanube_cli.development.parts import find_parts


def test_all_files_are_programs_that_run(tmp_path):
    paths = write_example(tmp_path / "shop")
    for path in paths:
        compile(path.read_text(), str(path), "exec")
    names = [each.name for each in find_parts(tmp_path / "shop", installed=())]
    assert names == ["broker", "shop", "worker"]


def test_files_that_exist_are_kept(tmp_path):
    kept = tmp_path / next(reversed(FILES))
    kept.parent.mkdir()
    kept.write_text("mine")
    with pytest.raises(AlreadyExists, match=kept.name):
        write_example(tmp_path)
    assert [*tmp_path.rglob("*.py")] == [kept]
    assert kept.read_text() == "mine"
