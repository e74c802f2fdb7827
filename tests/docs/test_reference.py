"""Every setting, metric, error and metadata key is documented as it is."""

from __future__ import annotations

import re
import subprocess
import sys

import msgspec
import pytest

from pydanube_broker.metadata import keys, records
from pydanube_broker.metadata.key import Key, Prefix
from pydanube_broker.servers.settings.config import settings_of
from pydanube_mqtt import records as mqtt_records
from support.project import ROOT

FORMAT = "".join(
    (ROOT / "docs" / "format" / name).read_text(encoding="utf-8")
    for name in ("metadata.md", "cluster.md")
)

RECORDS = [
    record
    for module in (records, mqtt_records)
    for record in vars(module).values()
    if isinstance(record, type)
    and issubclass(record, msgspec.Struct)
    and record.__module__ == module.__name__
]
PATHS = [
    each.path
    for module in (keys, mqtt_records)
    for each in vars(module).values()
    if isinstance(each, Key | Prefix)
]


def test_the_reference_pages_are_fresh() -> None:
    check = [sys.executable, "tools/reference.py", "--check"]
    done = subprocess.run(check, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_says_what_it_means() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    for setting in settings_of():
        (row,) = re.findall(rf"^\| `{re.escape(setting.path)}` .*$", page, re.MULTILINE)
        meaning = row.split("|")[-2].strip()
        assert meaning.endswith("."), f"{setting.path} needs a string under its field"


@pytest.mark.parametrize("path", PATHS)
def test_every_metadata_key_is_on_the_format_page(path: str) -> None:
    assert f"`{path}" in FORMAT


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_record_is_on_the_format_page(
    record: type[msgspec.Struct],
) -> None:
    assert f"### {record.__name__}" in FORMAT
    section = FORMAT.split(f"### {record.__name__}", 1)[1].split("\n#", 1)[0]
    for field in msgspec.structs.fields(record):
        assert f"| `{field.encode_name}` |" in section
