"""The guide to security works from top to bottom, as it stands."""

from __future__ import annotations

import re

import pytest

from support.drivers.guides import run_guide
from support.fakes.secured import AUDIENCE, ISSUER, claims, jwks, signed
from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = "docs/guide/security.md"
FILE = re.compile(r"[\w-]+\.(?:key|header|txt|json)\b")


def test_the_guide_works(tmp_path):
    text = (ROOT / PAGE).read_text()
    assert f"issuer: {ISSUER}" in text
    assert f"audience: {AUDIENCE}" in text
    (tmp_path / "keys.json").write_text(jwks())
    (tmp_path / "token.txt").write_text(signed(claims()))

    def write_header(line):
        if line.startswith("curl"):
            key = (tmp_path / "billing.key").read_text()
            (tmp_path / "billing.header").write_text(f"x-api-key: {key}")

    counts = run_guide(
        PAGE,
        tmp_path,
        replace=lambda text: FILE.sub(lambda found: str(tmp_path / found[0]), text),
        before=write_header,
    )
    assert counts == {"danube": 15, "curl": 2, "python": 2, "broker": 3}
