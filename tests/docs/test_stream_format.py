"""docs/format/stream.md says what the code does."""

import re
from pathlib import Path

from pydanube.wire.native.kinds import Kind

PAGE = Path(__file__).parents[2] / "docs" / "format" / "stream.md"


def test_every_kind_stands_in_the_table_as_it_is_declared():
    rows = set(re.findall(r"^\| ([A-Z_]+) \| .*$", PAGE.read_text(), re.MULTILINE))
    lines = PAGE.read_text().splitlines()

    assert rows == {kind.name for kind in Kind}
    for kind in Kind:
        body = f"`{kind.body.DESCRIPTOR.name}`" if kind.body else "batch"
        answer = kind.answer.name if kind.answer else ""
        on_channel = "yes" if kind.on_channel else ""
        assert (
            f"| {kind.name} | {int(kind)} | {kind.sender.value} | {body} | {answer} "
            f"| {on_channel} |"
        ) in lines
