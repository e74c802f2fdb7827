"""The guide to TLS works from top to bottom, as it stands."""

from __future__ import annotations

import pytest

from support.drivers.guides import run_guide

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_the_guide_works(tmp_path):
    counts = run_guide("docs/guide/tls.md", tmp_path)
    assert counts == {"danube": 6, "curl": 2, "python": 1, "broker": 2}
