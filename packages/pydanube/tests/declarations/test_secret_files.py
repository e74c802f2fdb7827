"""Tests of the files of secrets."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.declarations.secret_files import BYTES_MAX, read_secret
from pydanube.model.errors import InvalidConfig
from pydanube_spark.pipelines.loading import load

PIPELINE = """\
name: p
sources: {a: {topic: /default/a}}
sinks:
  out:
    input: a
    format: danube-postgres
    options: {uri: "postgresql://ada:${file:password}@h/db", table: t}
"""


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"secret", "secret"),
        (b"secret\r\n", "secret"),
        (b" two\nlines ", " two\nlines "),
    ],
)
def test_secret_is_the_text_without_the_last_line_break(tmp_path, content, text):
    (tmp_path / "s").write_bytes(content)
    assert read_secret(tmp_path, "s") == text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "and has none"),
        (b"\n", "and has none"),
        (b"x" * (BYTES_MAX + 1), "and has more"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_unsuitable_content_is_refused(tmp_path, content, words):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(InvalidConfig, match=words):
        read_secret(tmp_path, "s")


@pytest.mark.parametrize("name", ["", ".", "..", "../s", "a/b", "/etc/passwd"])
def test_only_files_of_the_directory_are_read(tmp_path, name):
    with pytest.raises(InvalidConfig, match="is not the name of a file"):
        read_secret(tmp_path, name)


def test_directory_and_missing_file_are_refused(tmp_path):
    (tmp_path / "directory").mkdir()
    for name in ("directory", "missing"):
        with pytest.raises(InvalidConfig, match="cannot be read"):
            read_secret(tmp_path, name)


def test_pipeline_reads_secrets_from_the_directory_of_the_environment(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    (tmp_path / "password").write_text("s3same\n")
    pipeline = load(file, environment={"DANUBE_SECRETS": str(tmp_path)})
    uri = pipeline.spec.sinks["out"].options["uri"]
    assert uri == "postgresql://ada:s3same@h/db"
    assert "s3same" not in pipeline.redact(f"cannot connect to {uri}")
    with pytest.raises(InvalidDeclaration) as invalid:
        load(file, environment={"DANUBE_SECRETS": str(tmp_path / "none")})
    [problem] = invalid.value.problems
    assert problem.path == "sinks.out.options.uri"
    assert "DANUBE_SECRETS" in problem.message
