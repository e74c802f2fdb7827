"""Limits as options and as output."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pydanube.cli.commands.limits import LABELS, limit_fields, with_settings
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy


def test_every_limit_has_a_label():
    assert list(LABELS) == [field.name for field in fields(NamespacePolicy)]


def test_only_named_limits_change():
    known = NamespacePolicy(max_publish_rate=5, max_message_size=6)
    settings = ["max_publish_rate=0", "max-producers-per-topic=3"]
    assert with_settings(known, settings) == NamespacePolicy(
        max_message_size=6, max_producers_per_topic=3
    )


@pytest.mark.parametrize(
    "setting", ["max_rate=1", "max_publish_rate", "max_publish_rate=-1", "=1", ""]
)
def test_invalid_limit_is_refused(setting):
    with pytest.raises(InvalidRequest):
        with_settings(NamespacePolicy(), [setting])


def test_missing_limit_is_shown_as_no_limit():
    facts = dict(limit_fields(NamespacePolicy(max_message_size=10)))
    assert facts["Bytes per message"] == 10
    assert facts["Producers per topic"] == "no limit"
