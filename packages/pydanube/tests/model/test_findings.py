"""What is wrong with a subscription, the worst first."""

from dataclasses import replace

import pytest

from pydanube.model.findings import FindingKind, Findings, finding_of, merged
from support.fakes.descriptions import SUBSCRIPTION


@pytest.mark.parametrize(
    ("changes", "age_s", "kind", "text"),
    [
        ({}, 600.0, None, ""),
        ({}, 601.0, "LATE", "is 10m 1s behind, with 5 messages and no consumer"),
        ({"consumers": ("c",)}, 3600.0, "LATE", "is 1h behind, with 5 messages"),
        ({"backlog": 0}, 3600.0, None, ""),
        ({"is_paused": True}, 3600.0, "PAUSED", "is paused, and 5 messages wait"),
        ({"is_paused": True, "backlog": 0}, 0.0, None, ""),
        ({"blocked": ((3, 4),)}, 0.0, "BLOCKED", "is blocked by message 3"),
        ({"blocked": ((3, 4),), "is_paused": True}, 0.0, "BLOCKED", None),
        ({"dead_letter_error": "no"}, 0.0, "DEAD_LETTERS", None),
        (
            {"stopped_by": "segment 5"},
            0.0,
            "CORRUPT_SEGMENT",
            "is stopped by segment 5",
        ),
        ({"stopped_by": "x", "blocked": ((3, 4),)}, 0.0, "CORRUPT_SEGMENT", None),
    ],
)
def test_the_worst_is_found(changes, age_s, kind, text):
    found = finding_of("/default/t", replace(SUBSCRIPTION, **changes), age_s)
    if kind is None:
        assert found is None
        return
    assert found.kind is FindingKind[kind]
    assert text is None or found.text == text


def test_findings_of_brokers_are_added_up_and_the_worst_are_kept():
    late = finding_of("/default/t", SUBSCRIPTION, 700.0)
    later = finding_of("/default/u", SUBSCRIPTION, 900.0)
    blocked = finding_of("/default/v", replace(SUBSCRIPTION, blocked=((1, 2),)), 0.0)
    one = Findings(subscriptions=(late,), finding_count=4, topic_count=7, backlog=5)
    other = Findings(
        subscriptions=(blocked, later), finding_count=2, topic_count=1, backlog=6
    )
    found = merged([one, other], 2)
    assert found.subscriptions == (blocked, later)
    assert (found.finding_count, found.topic_count, found.backlog) == (6, 8, 11)
