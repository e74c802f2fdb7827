"""Settings of a topic become a document, and a document becomes changes."""

from dataclasses import replace

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    CorruptionPolicy,
    Deduplication,
    DispatchLimits,
    DispatchMode,
    FailurePolicy,
    NamespacePolicy,
    NamespaceSettings,
    PoisonPolicy,
    Retention,
    SubscriptionSettings,
    TopicPolicy,
)
from pydanube.model.schemas import SchemaPolicy, TopicSchema
from pydanube.model.setting_documents import (
    Change,
    changes_between,
    document_of,
    document_of_pairs,
    namespace_document_of,
    subscription_document_of,
    summarize,
    whole_document_of,
    with_document,
    with_namespace_document,
    with_subscription_document,
)
from support.fakes.descriptions import TOPIC

OWN = replace(
    TOPIC,
    policy=TopicPolicy(
        retention=Retention(age_s=604800.0, bytes_max=2**63 - 1),
        on_corruption=CorruptionPolicy.SKIP,
        seal_bytes=1024 * 1024,
        seal_age_s=90.5,
    ),
    retention=Retention(age_s=604800.0, bytes_max=2**63 - 1),
    limits=NamespacePolicy(max_publish_rate=5),
    own_limits=NamespacePolicy(max_publish_rate=5),
    schema=TopicSchema(subject="orders", policy=SchemaPolicy.ENFORCE, version_min=2),
)
FAST = replace(TOPIC, policy=TopicPolicy(dispatch=DispatchMode.NON_RELIABLE))


def shown(topic, settings):
    return document_of(settings, is_reliable=topic.policy.is_reliable)


def changed(topic, *pairs):
    return with_document(topic, document_of_pairs(list(pairs)))


def changes(topic, *pairs):
    return changes_between(
        shown(topic, topic.settings), shown(topic, changed(topic, *pairs))
    )


def test_settings_of_the_namespace_and_the_broker_are_words():
    assert shown(TOPIC, TOPIC.settings) == {
        "on_corruption": "stop",
        "retention": "inherit",
        "sealing": {"size": "default", "age": "default"},
        "deduplication": "none",
        "limits": "inherit",
        "schema": "none",
    }


def test_own_settings_are_groups():
    document = shown(OWN, OWN.settings)
    assert document["retention"] == {
        "age": "7d",
        "size": "9223372036854775807B",
        "acknowledged": False,
    }
    assert document["sealing"] == {"size": "1MiB", "age": "90.5s"}
    assert document["limits"]["max_publish_rate"] == 5
    assert document["schema"] == {
        "subject": "orders",
        "policy": "enforce",
        "validate_payload": False,
        "version": "any",
        "min_version": 2,
    }


@pytest.mark.parametrize("topic", [TOPIC, OWN, FAST])
def test_document_of_a_topic_changes_nothing(topic):
    assert with_document(topic, shown(topic, topic.settings)) == topic.settings


def test_only_named_settings_change():
    assert changes(OWN, "retention.age=1d", "schema.policy=warn") == [
        Change("retention.age", "7d", "1d"),
        Change("schema.policy", "enforce", "warn"),
    ]
    new = changed(OWN, "retention.age=1d", "retention.acknowledged=true")
    assert new.retention == Retention(
        age_s=86400.0, bytes_max=2**63 - 1, drops_acknowledged=True
    )
    assert new.limits == OWN.own_limits
    assert new.schema == OWN.schema


def test_own_settings_begin_with_those_of_the_namespace():
    inheriting = replace(
        TOPIC,
        retention=Retention(bytes_max=1000),
        limits=NamespacePolicy(max_message_size=9),
    )
    new = changed(inheriting, "retention.age=1h", "limits.max_publish_rate=7")
    assert new.retention == Retention(age_s=3600.0, bytes_max=1000)
    assert new.limits == NamespacePolicy(max_message_size=9, max_publish_rate=7)


def test_groups_can_be_removed():
    new = changed(OWN, "retention=inherit", "limits=inherit", "schema=none")
    assert (new.retention, new.limits, new.schema) == (None, None, None)
    assert with_document(OWN, {"retention": None}).retention is None


def test_single_values_can_be_removed():
    new = changed(
        OWN, "retention.size=none", "sealing.size=default", "schema.min_version=any"
    )
    assert new.retention == Retention(age_s=604800.0)
    assert (new.seal_bytes, new.seal_age_s) == (None, 90.5)
    assert new.schema.version_min is None


def test_deduplication_begins_with_the_defaults_and_may_end():
    begun = changed(TOPIC, "deduplication.age=5m")
    assert begun.deduplication == Deduplication(age_s=300.0)
    has_it = replace(
        TOPIC, policy=replace(TOPIC.policy, deduplication=begun.deduplication)
    )
    wider = changed(has_it, "deduplication.messages=200000")
    assert wider.deduplication == Deduplication(age_s=300.0, messages_max=200_000)
    assert changed(has_it, "deduplication=none").deduplication is None


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ("retention.aeg=1d", r"no setting retention\.aeg .* did you mean 'age'\?"),
        ("ttl=1d", "no setting ttl that can change; the settings are on_corruption"),
        ("retention=7d", "retention is '7d'; it must have settings .*, or 'inherit'"),
        ("sealing=default", "sealing is 'default'; it must have settings .size, age.$"),
        ("retention.age=7", r"retention\.age: '7' has no unit"),
        ("retention.age=0s", "the retention age is 0.0 s; it must be more than 0"),
        ("retention.size=big", r"retention\.size: 'big' is not a size"),
        (
            "retention.acknowledged=1",
            r"retention\.acknowledged: 1 is not true or false",
        ),
        ("sealing.size=1B", "the size of segments is 1 bytes"),
        ("on_corruption=ignore", "on_corruption: 'ignore' is not stop or skip"),
        ("limits.max_publish_rate=-1", "'-1' is not a number of 0 or more"),
        ("limits.max_publish_rate=true", "True is not a number of 0 or more"),
        ("schema.policy=strict", r"schema\.policy: .*strict"),
        ("schema.version=0", r"schema\.version: 0 is not the number of a version"),
        ("schema.subject=1", r"schema\.subject: 1 is not a name"),
        ("schema.policy=warn", "schema.subject is missing: the topic has no schema"),
        ("retention.age", "does not have the form NAME=VALUE"),
        ("=1", "does not have the form NAME=VALUE"),
    ],
)
def test_invalid_change_is_refused(pair, reason):
    with pytest.raises(InvalidRequest, match=reason):
        changed(TOPIC, pair)


@pytest.mark.parametrize(
    "pairs",
    [
        ("retention.age=1d", "retention.age=2d"),
        ("retention=inherit", "retention.age=2d"),
        ("retention.age=2d", "retention=inherit"),
    ],
)
def test_contradicting_changes_are_refused(pairs):
    with pytest.raises(InvalidRequest, match="contradicts another value of retention"):
        document_of_pairs(list(pairs))


def test_non_reliable_topic_has_limits_and_a_schema():
    assert list(shown(FAST, FAST.settings)) == ["limits", "schema"]
    with pytest.raises(InvalidRequest, match="the settings are limits, schema"):
        changed(FAST, "retention.age=1d")


@pytest.mark.parametrize("document", [[], "stop", {1: 2}, {"limits": []}])
def test_document_of_another_form_is_refused(document):
    with pytest.raises(InvalidRequest):
        with_document(TOPIC, document)


def test_group_that_comes_or_goes_is_one_change():
    [change] = changes(TOPIC, "limits.max_publish_rate=7")
    assert (change.setting, change.old) == ("limits", "inherit")
    assert summarize(change.new) == "max_publish_rate=7"
    [change] = changes(OWN, "retention=inherit")
    assert change.new == "inherit"
    assert summarize(change.old) == "age=7d, size=9223372036854775807B, acknowledged=no"
    assert summarize({"max_publish_rate": 0}) == "no limits"


def test_whole_document_has_the_values_of_the_namespace():
    topic = replace(
        TOPIC,
        retention=Retention(age_s=3600.0),
        limits=NamespacePolicy(max_publish_rate=5),
    )
    whole = whole_document_of(topic)
    assert whole["retention"]["age"] == "1h"
    assert whole["limits"]["max_publish_rate"] == 5
    assert whole["schema"]["subject"] == ""
    assert whole_document_of(OWN)["schema"]["subject"] == "orders"
    assert list(whole_document_of(FAST)) == ["limits", "schema"]


def test_settings_of_a_subscription_change_by_their_names():
    old = SubscriptionSettings()
    assert subscription_document_of(old)["failure_policy"]["ack_timeout"] == "30s"
    pairs = ["failure_policy.dead_letter_topic=/default/d", "failure_policy.delay=2s"]
    document = document_of_pairs([*pairs, "limits.unacked=7", "paused=true"])
    new = with_subscription_document(old, document)
    assert new == SubscriptionSettings(
        failure_policy=FailurePolicy(
            # A dead-letter topic is for messages that have failed too often.
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic="/default/d",
            redelivery_delay_s=2.0,
        ),
        limits=DispatchLimits(unacked_messages_max=7),
        is_paused=True,
    )
    dropping = {"failure_policy": {"poison": "drop", "ack_timeout": "never"}}
    policy = with_subscription_document(new, dropping).failure_policy
    assert (policy.poison, policy.ack_timeout_s) == (PoisonPolicy.DROP, None)
    cleared = {"failure_policy": "default", "limits": "none", "paused": False}
    assert with_subscription_document(new, cleared) == old


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("failure_policy.poison=arsenic", "failure_policy.poison: .* 'arsenic'"),
        ("failure_policy.redeliveries=-1", "is not a number"),
        ("paused=perhaps", "paused: 'perhaps' is not true or false"),
        ("limits.unackd=7", "no setting limits.unackd .* did you mean"),
    ],
)
def test_wrong_setting_of_a_subscription_is_named(pair, said):
    with pytest.raises(InvalidRequest, match=said):
        with_subscription_document(SubscriptionSettings(), document_of_pairs([pair]))


def test_settings_of_a_namespace_change_by_their_names():
    old = NamespaceSettings()
    pairs = ["policy.max_publish_rate=7", "retention.age=1d"]
    new = with_namespace_document(old, document_of_pairs(pairs))
    assert new.policy.max_publish_rate == 7
    assert new.retention.age_s == 86_400
    assert namespace_document_of(new)["retention"]["age"] == "1d"
    with pytest.raises(InvalidRequest, match="retention is 'inherit'; it must have"):
        with_namespace_document(old, {"retention": "inherit"})
