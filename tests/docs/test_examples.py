"""Every example of the guides runs, top to bottom, as it stands."""

import re

import pytest

from pydanube.servers.config import load_config
from support.examples import run_page
from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGES = [
    "docs/guide/start.md",
    "docs/guide/produce.md",
    "docs/guide/consume.md",
    "docs/guide/partitions.md",
    "docs/guide/delays.md",
    "docs/guide/failures.md",
    "docs/guide/admin.md",
    "docs/guide/schemas.md",
    "docs/guide/lakehouse.md",
    "docs/guide/maintenance.md",
    "docs/guide/backup.md",
]


@pytest.mark.parametrize("page", ["operate", "object-storage"])
def test_settings_in_guides_are_settings(page, tmp_path):
    text = (ROOT / f"docs/guide/{page}.md").read_text()
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert examples
    path = tmp_path / "broker.yaml"
    for example in examples:
        path.write_text(example)
        assert load_config(path, {}, {}) != load_config(None, {}, {})


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page, tmp_path):
    run_page(page, tmp_path)
