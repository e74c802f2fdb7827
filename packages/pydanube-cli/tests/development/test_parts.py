"""A directory says what a system consists of."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.development.parts import find_parts

ALL = ("broker", "console", "connect", "pipeline")


def write(directory, *names):
    for name in names:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    return directory


def test_an_empty_directory_is_a_broker_and_the_console(tmp_path):
    broker, console = find_parts(tmp_path, installed=ALL)
    assert broker.is_broker
    assert broker.command[-3:] == ["broker", "--data-dir", str(tmp_path / ".danube")]
    assert console.command[-1] == "console"


def test_all_files_are_run_in_order(tmp_path):
    write(
        tmp_path,
        "broker.yaml",
        "connectors/b.yaml",
        "connectors/a.yml",
        "pipelines/daily.yaml",
        "programs/worker.py",
        "programs/api.py",
        "programs/notes.txt",
    )
    parts = find_parts(tmp_path, installed=ALL, has_console=False)
    names = ["broker", "connectors", "daily", "api", "worker"]
    assert [each.name for each in parts] == names
    broker, connectors, daily, api, _ = (each.command for each in parts)
    assert broker[-2:] == ["--config", str(tmp_path / "broker.yaml")]
    assert connectors[-4:-2] == ["connect", "run"]
    assert sorted(connectors[-2:]) == [
        str(tmp_path / "connectors" / name) for name in ("a.yml", "b.yaml")
    ]
    assert daily[-3:] == ["pipeline", "run", str(tmp_path / "pipelines/daily.yaml")]
    assert api[-1] == str(tmp_path / "programs/api.py")


def test_a_console_that_is_not_installed_is_left_out(tmp_path):
    assert len(find_parts(tmp_path, installed=("broker",))) == 1


@pytest.mark.parametrize(
    ("name", "extra"),
    [("connectors/a.yaml", "connect"), ("pipelines/a.yaml", "pipelines")],
)
def test_what_is_not_installed_is_named_with_its_extra(tmp_path, name, extra):
    write(tmp_path, name)
    with pytest.raises(InvalidRequest, match=rf"pydanube\[{extra}\]"):
        find_parts(tmp_path, installed=("broker",))


def test_a_directory_that_does_not_exist_is_refused_with_a_way_out(tmp_path):
    with pytest.raises(InvalidRequest, match="danube up --init"):
        find_parts(tmp_path / "missing", installed=ALL)
