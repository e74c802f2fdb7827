"""Tests of the templates."""

import pytest

from pydanube.model.errors import AlreadyExists, InvalidRequest
from pydanube_spark.pipelines.templates import DEFAULT, templates, write_template


def test_default_and_declarative_templates_exist():
    assert {DEFAULT, "declarative"} <= templates().keys()


@pytest.mark.parametrize("name", templates())
def test_all_files_of_template_are_written(name, tmp_path):
    written = write_template(name, tmp_path / "new")
    source = templates()[name]
    assert {path.name for path in written} >= {
        path.name for path in source.iterdir() if path.is_file()
    }
    for path in written:
        original = source / path.relative_to(tmp_path / "new")
        assert path.read_text() == original.read_text()


def test_existing_file_prevents_writing(tmp_path):
    (tmp_path / "pipeline.yaml").write_text("mine")
    with pytest.raises(AlreadyExists, match="nothing was written"):
        write_template("enrich", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_unknown_template_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(InvalidRequest, match="did you mean 'enrich'"):
        write_template("enrick", tmp_path)
