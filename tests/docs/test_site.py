"""The documentation site: each link leads somewhere, and nothing needs a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPT = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(https?:[^\"> ]+)"
)
LINK = re.compile(r"\]\(([^)]+)\)")


def test_the_site_is_built(tmp_path):
    (tmp_path / "0.0").mkdir()
    (tmp_path / "0.0" / "index.html").touch()
    command = [sys.executable, "tools/site.py", "--output", str(tmp_path)]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    versions = json.loads((tmp_path / "versions.json").read_text())
    assert [each["version"] for each in versions][-1] == "0.0"
    assert versions[0]["aliases"] == ["latest"]
    site = tmp_path / versions[0]["version"]
    assert f"{site.name}/index.html" in (tmp_path / "index.html").read_text()

    pages = {each.relative_to(site).as_posix() for each in site.rglob("*.html")}
    documents = (ROOT / "docs").rglob("*.md")
    assert len(pages) > len(list(documents))
    for name in pages:
        assert SCRIPT.findall((site / name).read_text(encoding="utf-8")) == []
    # A sequence diagram would load its renderer.
    assert "mermaid" not in (site / "tour.html").read_text(encoding="utf-8")
    assert (site / "search" / "search_index.json").is_file()

    home = (site / "index.html").read_text(encoding="utf-8")
    assert "Messaging for Python" in home
    for name in re.findall(r'class="md-button[^>]*href="?([^"> ]+)', home):
        assert name in pages

    listed = LINK.findall((site / "llms.txt").read_text(encoding="utf-8"))
    assert {"index.md", "guide/start.md", "reference/api.md"} <= set(listed)
    for name in listed:
        assert (site / name).is_file()
