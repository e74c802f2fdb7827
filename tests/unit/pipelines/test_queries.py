"""Tests of the writes of single micro-batches."""

import json

import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import InvalidConfig
from pydanube.pipelines.queries import batch_writer
from pydanube.pipelines.spec import Mode


class WriterSpy:
    """A DataFrame and its writer, which record what would be written."""

    def __init__(self):
        self.saves = []
        self._call = {}

    @property
    def write(self):
        self._call = {}
        return self

    def format(self, name):
        self._call["format"] = name
        return self

    def mode(self, mode):
        self._call["mode"] = mode
        return self

    def options(self, **options):
        self._call["options"] = options
        return self

    def save(self):
        self.saves.append(self._call)


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "metadata").write_text(json.dumps({"id": "the-query"}))
    return tmp_path


@pytest.fixture
def spy():
    return WriterSpy()


def test_whole_aggregate_replaces_the_rows_of_a_jdbc_table(spy, checkpoint):
    write = batch_writer("jdbc", Mode.COMPLETE, {"dbtable": "t"}, checkpoint)
    write(spy, 0)
    write(spy, 1)
    save = {
        "format": "jdbc",
        "mode": "overwrite",
        "options": {"dbtable": "t", "truncate": "true"},
    }
    assert spy.saves == [save, save]


def test_truncation_of_a_jdbc_table_can_be_turned_off(spy, checkpoint):
    batch_writer("jdbc", Mode.COMPLETE, {"Truncate": "false"}, checkpoint)(spy, 0)
    assert spy.saves[0]["options"] == {"Truncate": "false"}


def test_appended_rows_of_jdbc_are_added(spy, checkpoint):
    batch_writer("jdbc", Mode.APPEND, {"dbtable": "t"}, checkpoint)(spy, 0)
    assert spy.saves[0] == {
        "format": "jdbc",
        "mode": "append",
        "options": {"dbtable": "t"},
    }


def test_updates_have_the_number_of_their_batch(spy, checkpoint):
    options = {"table": "t", "keyColumns": "k"}
    batch_writer("danube-postgres", Mode.UPDATE, options, checkpoint)(spy, 7)
    assert spy.saves[0]["mode"] == "append"
    assert spy.saves[0]["options"] == options | {"batchId": "7", "appId": "the-query"}


@pytest.mark.parametrize("name", ["danube-delta", "danube-postgres", "jdbc"])
def test_updates_without_a_key_are_refused_before_the_first_batch(name, checkpoint):
    with pytest.raises(InvalidConfig, match="beside the old ones"):
        batch_writer(name, Mode.UPDATE, {"table": "t"}, checkpoint)
