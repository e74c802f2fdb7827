"""Only what a user has edited becomes a change."""

import pytest

pytest.importorskip("nicegui")

from dataclasses import replace

from pydanube.model.policy import Retention, TopicPolicy
from pydanube.model.setting_documents import (
    Change,
    document_of,
    whole_document_of,
    with_document,
)
from pydanube_console.topic_settings_form import (
    ABSENT,
    TITLES,
    EditedGroup,
    edited_document,
    render_settings_changes,
)
from support.fakes.descriptions import TOPIC

HOUR = Retention(age_s=3600.0)
OWN = replace(TOPIC, policy=TopicPolicy(retention=HOUR), retention=HOUR)


def edited(topic, **groups):
    """The settings after an edit of these groups; a string: the group is left."""
    whole = whole_document_of(topic)
    current = document_of(topic.settings, is_reliable=topic.policy.is_reliable)
    found = {}
    for name, shown in whole.items():
        is_own = isinstance(current[name], dict)
        values = shown if isinstance(shown, dict) else {name: shown}
        found[name] = EditedGroup(is_own, dict(values))
        given = groups.get(name)
        if isinstance(given, dict):
            found[name] = EditedGroup(True, values | given)
        elif given is not None:
            found[name] = EditedGroup(given != ABSENT[name][0], dict(values))
    return with_document(topic, edited_document(whole, current, found))


def test_form_that_is_left_as_it_is_changes_nothing():
    for topic in (TOPIC, OWN):
        assert edited(topic) == topic.settings


def test_field_of_a_group_changes_alone():
    found = edited(OWN, retention={"size": "10GiB"}, sealing={"age": "5m"})
    assert found.retention == Retention(age_s=3600.0, bytes_max=10 * 1024**3)
    assert found.seal_age_s == 300.0
    assert found.limits is None


def test_group_is_taken_from_the_namespace_and_given_back():
    assert edited(OWN, retention="inherit").retention is None
    assert edited(TOPIC, retention="own").retention == TOPIC.retention
    assert edited(TOPIC, limits={"max_publish_rate": 5}).limits.max_publish_rate == 5


def test_every_group_has_a_title():
    assert list(whole_document_of(TOPIC)) == list(TITLES)
    choice = EditedGroup(values={"on_corruption": "skip"})
    found = edited_document({"on_corruption": "stop"}, {}, {"on_corruption": choice})
    assert found == {"on_corruption": "skip"}


def test_changes_are_shown_as_text():
    shown = render_settings_changes([Change("schema.subject", "<b>", "orders")])
    assert "&lt;b&gt;" in shown
    assert "Nothing changes." in render_settings_changes([])
