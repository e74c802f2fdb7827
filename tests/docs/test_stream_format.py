"""docs/format/stream.md says what the code does."""

import re
from pathlib import Path

from pydanube.wire.native.frames import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "format" / "stream.md"


def test_every_kind_stands_in_the_table_as_it_is_declared():
    rows = set(re.findall(r"^\| ([A-Z_]+) \| .*$", PAGE.read_text(), re.MULTILINE))
    lines = PAGE.read_text().splitlines()

    assert rows == {kind.name for kind in KINDS}
    for kind, rule in KINDS.items():
        body = f"`{rule.body.DESCRIPTOR.name}`" if rule.body else "batch"
        answer = rule.answer.name if rule.answer else ""
        on_channel = "yes" if rule.on_channel else ""
        assert (
            f"| {kind.name} | {int(kind)} | {rule.sender.value} | {body} | {answer} "
            f"| {on_channel} |"
        ) in lines
