"""Changes of a topic are made together."""

import pytest

from pydanube.cli.commands import topic_configuration as cli
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy, Retention
from pydanube.model.schemas import TopicSchema
from pydanube.model.topic_settings import document_of_pairs, with_document
from support.descriptions import TOPIC

PAIRS = [
    "retention.age=1d",
    "limits.max_publish_rate=7",
    "sealing.age=1h",
    "on_corruption=skip",
    "schema.subject=orders",
]


class Calls:
    """A client that records the changes of topics."""

    def __init__(self):
        self.made = []
        self.topics = self

    def configure(self, topic, **changes):
        self.made.append((topic, changes))


def change(client, *, dry_run=False):
    new = with_document(TOPIC, document_of_pairs(PAIRS))
    return cli._changed(client, TOPIC.topic, TOPIC, new, dry_run=dry_run)


def test_one_call_changes_exactly_what_differs():
    client = Calls()
    assert len(change(client).value["changes"]) == 5
    assert client.made == [
        (
            TOPIC.topic,
            {
                "retention": Retention(age_s=86_400.0),
                "limits": NamespacePolicy(max_publish_rate=7),
                "seal_age_s": 3600.0,
                "on_corruption": "skip",
                "schema": TopicSchema(subject="orders"),
            },
        )
    ]


def test_dry_run_changes_nothing():
    client = Calls()
    assert len(change(client, dry_run=True).value["changes"]) == 5
    assert client.made == []


def test_settings_that_the_topic_has_already_are_not_sent():
    client = Calls()
    cli._changed(client, TOPIC.topic, TOPIC, TOPIC.settings, dry_run=False)
    assert client.made == []


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
