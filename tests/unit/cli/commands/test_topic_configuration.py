"""Changes of a topic are made in an order that loses nothing."""

import pytest

from pydanube.cli.commands import topic_configuration as cli
from pydanube.cli.topic_settings import document_of_pairs, with_document
from pydanube.model.errors import ConnectionLost, InvalidRequest
from support.descriptions import TOPIC

PAIRS = [
    "retention.age=1d",
    "limits.max_publish_rate=7",
    "sealing.age=1h",
    "on_corruption=skip",
    "schema.subject=orders",
]


class Calls:
    """A client that records the names of calls, and fails at one of them."""

    def __init__(self, failing=None):
        self.made = []
        self.failing = failing
        self.schemas = self

    def __getattr__(self, name):
        def call(*_, **__):
            if name == self.failing:
                raise ConnectionLost("gone")
            self.made.append(name)

        return call


def change(client, *, dry_run=False):
    new = with_document(TOPIC, document_of_pairs(PAIRS))
    return cli._changed(client, TOPIC.topic, TOPIC, new, dry_run=dry_run)


def test_schema_changes_first_and_retention_last():
    client = Calls()
    assert len(change(client).value["changes"]) == 5
    assert client.made == [
        "bind",
        "set_topic_limits",
        "set_on_corruption",
        "set_sealing",
        "set_retention",
    ]


def test_dry_run_changes_nothing():
    client = Calls()
    assert len(change(client, dry_run=True).value["changes"]) == 5
    assert client.made == []


def test_changes_before_an_error_are_named(capsys):
    client = Calls(failing="set_on_corruption")
    with pytest.raises(ConnectionLost):
        change(client)
    assert capsys.readouterr().err == "Changed before the error: schema, limits.\n"
    assert client.made == ["bind", "set_topic_limits"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("retention: {", "the document is not YAML"),
        ("#" * (cli.DOCUMENT_BYTES_MAX + 1), "is larger than 1048576 bytes"),
    ],
)
def test_bad_document_is_refused(text, reason):
    with pytest.raises(InvalidRequest, match=reason):
        cli._parse_yaml(text)


def test_document_of_comments_changes_nothing():
    assert cli._parse_yaml(cli.HEADER.format(topic="/default/t")) == {}
