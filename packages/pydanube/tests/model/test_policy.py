"""Policies: their defaults and bounds, and the retention that applies."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    KEEP_ALL,
    RETENTION_AGE_S_MAX,
    SEAL_AGE_S_MAX,
    SEAL_AGE_S_MIN,
    SEAL_BYTES_MAX,
    SEAL_BYTES_MIN,
    DispatchMode,
    Durability,
    Retention,
    TopicPolicy,
)


def test_topic_is_reliable_durable_and_without_retention_by_default() -> None:
    policy = TopicPolicy()
    assert policy.is_reliable
    assert policy.durability is Durability.DURABLE
    assert policy.retention is None
    assert Retention(age_s=None, bytes_max=None, drops_acknowledged=False) == KEEP_ALL
    assert not TopicPolicy(dispatch=DispatchMode.NON_RELIABLE).is_reliable


def test_retention_of_the_topic_replaces_that_of_the_namespace() -> None:
    limit = Retention(age_s=60.0)
    assert TopicPolicy().effective_retention(limit) is limit
    assert TopicPolicy(retention=KEEP_ALL).effective_retention(limit) is KEEP_ALL


@pytest.mark.parametrize(
    "retention",
    [
        Retention(age_s=0.0),
        Retention(age_s=-1.0),
        Retention(age_s=float("nan")),
        Retention(age_s=float("inf")),
        Retention(age_s=RETENTION_AGE_S_MAX + 1.0),
        Retention(bytes_max=0),
        Retention(bytes_max=-1),
        Retention(bytes_max=2**63),
    ],
)
def test_retention_out_of_range_is_refused(retention: Retention) -> None:
    with pytest.raises(InvalidRequest, match="must be more than 0"):
        retention.check()
    with pytest.raises(InvalidRequest, match="must be more than 0"):
        TopicPolicy(retention=retention).check()


def test_bounds_of_retention_are_allowed() -> None:
    Retention(age_s=RETENTION_AGE_S_MAX, bytes_max=1).check()
    Retention(age_s=0.001, bytes_max=2**63 - 1, drops_acknowledged=True).check()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (TopicPolicy(seal_bytes=SEAL_BYTES_MIN - 1), "65536 to 1073741824 bytes"),
        (TopicPolicy(seal_bytes=SEAL_BYTES_MAX + 1), "65536 to 1073741824 bytes"),
        (TopicPolicy(seal_age_s=SEAL_AGE_S_MIN / 2), "1 to 2592000 s"),
        (TopicPolicy(seal_age_s=SEAL_AGE_S_MAX + 1), "1 to 2592000 s"),
        (TopicPolicy(seal_age_s=float("nan")), "1 to 2592000 s"),
    ],
)
def test_sealing_out_of_range_is_refused(policy: TopicPolicy, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        policy.check()


def test_bounds_of_sealing_are_allowed() -> None:
    TopicPolicy(seal_bytes=SEAL_BYTES_MIN, seal_age_s=SEAL_AGE_S_MIN).check()
    TopicPolicy(seal_bytes=SEAL_BYTES_MAX, seal_age_s=SEAL_AGE_S_MAX).check()
