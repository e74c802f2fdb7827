"""Quotas: their targets, and the limits that each kind of target may have."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube.security.quotas import (
    BYTES_PER_S_MIN,
    QUOTA_MAX,
    Quota,
    QuotaScope,
    QuotaTarget,
    check_quota_of,
)

TARGETS = {
    "user:billing": QuotaTarget(QuotaScope.PRINCIPAL, "billing"),
    "user:spiffe://shop/billing": QuotaTarget(
        QuotaScope.PRINCIPAL, "spiffe://shop/billing"
    ),
    "anonymous": QuotaTarget(QuotaScope.PRINCIPAL, "anonymous"),
    "/shop": QuotaTarget(QuotaScope.NAMESPACE, "shop"),
    "/shop/orders": QuotaTarget(QuotaScope.TOPIC, "/shop/orders"),
}


@pytest.mark.parametrize("text", TARGETS)
def test_target_is_parsed_and_written_alike(text):
    target = QuotaTarget.parse(text)
    assert target == TARGETS[text]
    assert str(target) == text


@pytest.mark.parametrize("text", ["", "billing", "group:ops", "cluster", "subject:a"])
def test_other_targets_are_refused(text):
    with pytest.raises(InvalidName, match="cannot have a quota"):
        QuotaTarget.parse(text)


@pytest.mark.parametrize("text", ["user:", "user:anonymous", "user:bootstrap"])
def test_reserved_names_have_no_quota(text):
    with pytest.raises(InvalidRequest, match="principal"):
        QuotaTarget.parse(text)


def test_malformed_names_of_topics_are_refused():
    with pytest.raises(InvalidName):
        QuotaTarget.parse("/shop/../orders")


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("user:billing", Quota(topics=1)),
        ("user:billing", Quota(storage_bytes=1)),
        ("/shop", Quota(connections=1)),
        ("/shop", Quota(requests_per_s=1)),
        ("/shop/orders", Quota(subscriptions=1)),
    ],
)
def test_limit_that_a_target_cannot_have_is_refused(text, quota):
    with pytest.raises(InvalidRequest, match="can have only the limits"):
        check_quota_of(QuotaTarget.parse(text), quota)


@pytest.mark.parametrize(
    "quota",
    [
        Quota(bytes_in_per_s=BYTES_PER_S_MIN - 1),
        Quota(connections=QUOTA_MAX + 1),
        Quota(connections=-1),
    ],
)
def test_limit_out_of_range_is_refused(quota):
    with pytest.raises(InvalidRequest, match="expected"):
        check_quota_of(TARGETS["user:billing"], quota)


def test_quota_without_a_limit_is_refused():
    with pytest.raises(InvalidRequest, match="no limit"):
        check_quota_of(TARGETS["/shop"], Quota())


def test_lowest_and_highest_limits_are_allowed():
    check_quota_of(TARGETS["/shop"], Quota(bytes_out_per_s=BYTES_PER_S_MIN))
    check_quota_of(TARGETS["/shop"], Quota(storage_bytes=QUOTA_MAX))
