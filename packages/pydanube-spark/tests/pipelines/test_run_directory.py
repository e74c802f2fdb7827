"""Tests of the directory of runs."""

from pathlib import Path

import pytest

from pydanube.model.errors import Conflict, NotFound
from pydanube_spark.pipelines.run_directory import (
    ENTRIES_MAX,
    Entry,
    RunDirectory,
    run_directory,
)


@pytest.fixture
def runs(tmp_path):
    return RunDirectory(tmp_path / "runs")


def entry(tmp_path, name="p", place="a"):
    state = tmp_path / place / name
    state.mkdir(parents=True, exist_ok=True)
    return Entry(
        pipeline=name, file=f"/{place}/{name}.yaml", state_directory=str(state)
    )


def test_a_pipeline_is_found_by_its_name(runs, tmp_path):
    assert runs.entries() == []
    with pytest.raises(NotFound, match="no pipeline of this name was run"):
        runs.find("p")
    runs.add(entry(tmp_path))
    runs.add(entry(tmp_path))
    assert runs.find("p") == entry(tmp_path)
    assert runs.find("p").state.path == tmp_path / "a" / "p"
    runs.add(entry(tmp_path, place="b"))
    with pytest.raises(Conflict, match=r"/[ab]/p.yaml, /[ab]/p.yaml"):
        runs.find("p")


def test_a_pipeline_whose_state_is_deleted_is_forgotten(runs, tmp_path):
    runs.add(entry(tmp_path))
    (runs.path / "broken.json").write_text("{")
    Path(entry(tmp_path).state_directory).rmdir()
    assert runs.entries() == []
    assert [each.name for each in runs.path.iterdir()] == ["broken.json"]


def test_the_number_of_entries_is_limited(runs, tmp_path):
    for number in range(ENTRIES_MAX + 3):
        runs.add(entry(tmp_path, f"p{number}"))
    assert len(runs.entries()) == ENTRIES_MAX


def test_a_directory_that_cannot_be_written_does_not_stop_a_run(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    runs = RunDirectory(tmp_path / "file" / "runs")
    runs.add(entry(tmp_path))
    assert "does not show this run" in caplog.text
    assert runs.entries() == []


def test_the_directory_is_that_of_the_environment():
    home = Path.home() / ".local/state/danube/pipelines"
    assert run_directory({}).path == home
    assert run_directory({"XDG_STATE_HOME": "relative"}).path == home
    given = {"XDG_STATE_HOME": "/state"}
    assert run_directory(given).path == Path("/state/danube/pipelines")
    own = run_directory(given | {"DANUBE_STATE": "/mine"})
    assert own.path == Path("/mine/pipelines")
