"""Kafka's names of settings change those of topics, or are refused by name."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import KEEP_ALL, Retention
from pydanube_kafka.pure.settings import Change, TopicConfig, changed, describe

OWN = TopicConfig(retention=Retention(age_s=60.0, bytes_max=1000), seal_bytes=500)


def values(config, effective=KEEP_ALL, names=None):
    return {each.name: each.value for each in describe(config, effective, names)}


def test_settings_are_described_with_what_is_in_force():
    found = values(TopicConfig(), Retention(age_s=1.5))
    assert (found["retention.ms"], found["retention.bytes"]) == ("1500", "-1")
    assert found["segment.bytes"] == "-1"
    assert values(OWN, OWN.retention)["retention.bytes"] == "1000"


def test_only_wanted_settings_are_described():
    assert set(values(OWN, names=["retention.ms", "unknown"])) == {"retention.ms"}


def test_own_settings_can_be_told_from_inherited_ones():
    described = describe(OWN, OWN.retention)
    assert {each.name for each in described if each.is_own} == {
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
    }


def test_changes_leave_the_other_settings():
    changes = [("retention.ms", Change.SET, "5000"), ("segment.bytes", 1, None)]
    config, fields = changed(OWN, changes)
    assert config.retention == Retention(age_s=5.0, bytes_max=1000)
    assert config.seal_bytes is None
    assert fields == {"retention", "seal_bytes"}


def test_minus_one_is_no_limit():
    config, _ = changed(OWN, [("retention.ms", Change.SET, "-1")])
    assert config.retention == Retention(bytes_max=1000)


def test_what_holds_for_all_topics_may_be_said():
    assert changed(OWN, [("cleanup.policy", Change.SET, "delete")]) == (OWN, set())


def test_compact_keeps_all_messages():
    changes = [
        ("cleanup.policy", Change.SET, "compact"),
        ("retention.ms", Change.SET, "5000"),
    ]
    config, fields = changed(OWN, changes)
    assert (config.retention, fields) == (Retention(), {"retention"})
    shown = {each.name: each.value for each in describe(config, Retention())}
    # Kafka Connect refuses topics whose policy is another one.
    assert "cleanup.policy" not in shown
    assert shown["retention.ms"] == "-1"
    both = [("cleanup.policy", Change.SET, "delete, compact")]
    assert changed(OWN, both) == (OWN, set())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("unclean.leader.election.enable", 0, "true"), "no setting"),
        (("cleanup.policy", 0, "none"), "compact, delete or both"),
        (("cleanup.policy", 0, None), "compact, delete or both"),
        (("min.insync.replicas", 0, "2"), "is 1 for all"),
        (("retention.ms", 0, "a day"), "whole number"),
        (("retention.ms", 0, None), "whole number"),
        (("retention.ms", 0, "-5"), "-1 means"),
        (("retention.ms", 2, "1"), "no list"),
    ],
)
def test_other_changes_are_refused_by_name(change, reason):
    with pytest.raises(InvalidRequest, match=reason) as caught:
        changed(OWN, [change])
    assert change[0] in str(caught.value)
