"""The command of the guide to the console serves the pages that the guide lists."""

import re
import urllib.request

import pytest

pytest.importorskip("nicegui")

from pydanube_console.serving import PAGES
from support.drivers.commands import end, start_danube
from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GUIDE = (ROOT / "docs" / "guide" / "console.md").read_text()


def test_command_of_the_guide_serves_the_console():
    [command] = re.findall(r"^danube (console .*)$", GUIDE, re.MULTILINE)[:1]
    process = start_danube(*command.split(), "--port", "0")
    try:
        url = re.search(r"http://\S+", process.stdout.readline().decode())[0]
        with urllib.request.urlopen(f"{url}/healthz") as answer:
            assert answer.read() == b"ok"
    finally:
        end(process, 15)


def test_guide_lists_all_pages():
    listed = {
        name.strip().lower()
        for row in re.findall(r"^\| (.+?) \| [a-z]", GUIDE, re.MULTILINE)
        for name in row.split(",")
    }
    singular = {"/topic", "/schema", "/pipeline"}
    names = {module for path, module in PAGES.items() if path not in singular}
    assert {name.replace("_", " ") for name in names} <= {
        "audit" if name == "audit log" else name for name in listed
    }
