"""The options and the output of `danube schemas`, without a broker."""

import pytest
from typer.testing import CliRunner

from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import SchemaPolicy, SchemaType, TopicSchema
from pydanube_cli.administration.schema_bindings import describe_binding
from pydanube_cli.commands.schemas import _schema_from
from pydanube_cli.main import app

NOBODY = "danube://127.0.0.1:1"


def run(*arguments):
    return CliRunner().invoke(app, ["schemas", *arguments, "--url", NOBODY])


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("order.avsc", SchemaType.AVRO),
        ("order.json", SchemaType.JSON_SCHEMA),
        ("order.proto", SchemaType.PROTOBUF),
    ],
)
def test_schema_type_follows_from_the_file_name(tmp_path, name, type_):
    path = tmp_path / name
    path.write_text("text")
    schema = _schema_from(path, None, None)
    assert (schema.type, schema.definition) == (type_, "text")
    assert _schema_from(path, "string", None).type is SchemaType.STRING
    assert _schema_from(path, None, "shop.Order").message == "shop.Order"


def test_a_type_without_a_definition_needs_no_file():
    assert _schema_from(None, "string", None).definition == ""


@pytest.mark.parametrize(
    ("file", "type_", "said"),
    [
        (None, None, "--type"),
        ("order.txt", None, "--type"),
        (None, "avro", "--file"),
        (None, "thrift", "thrift"),
        ("order.avsc", None, "UTF-8"),
    ],
)
def test_missing_type_or_file_is_refused(tmp_path, file, type_, said):
    path = None if file is None else tmp_path / file
    if path is not None:
        path.write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match=said):
        _schema_from(path, type_, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("register", "orders"),
        ("check", "orders", "--type", "string", "--mode", "sideways"),
        ("diff", "orders", "1", "2", "--file", "order.avsc"),
        ("set-compatibility", "orders", "sideways"),
        ("delete", "orders"),
    ],
)
def test_contradicting_arguments_are_refused_without_a_broker(arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")


def test_a_file_that_is_not_there_is_named(tmp_path):
    result = run("register", "orders", "--file", str(tmp_path / "order.avsc"))
    assert result.exit_code == 1
    assert "order.avsc: No such file" in result.stderr


def test_binding_is_described():
    assert describe_binding(None) == "no schema"
    assert describe_binding(TopicSchema(subject="orders")) == "orders (warn)"
    pinned = TopicSchema(
        subject="orders",
        policy=SchemaPolicy.ENFORCE,
        validates_payload=True,
        version=3,
        version_min=2,
    )
    assert describe_binding(pinned) == (
        "orders (enforce, payloads are validated, only version 3, version 2 or later)"
    )
