"""The page for users of other systems: its line counts are those of its examples."""

import re

import pytest

from support.project import ROOT

PAGE = ROOT / "docs/guide/coming-from.md"
PROGRAM = re.compile(r"^```(?:python|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| ([^|]*?) +\| (\d+) \|$", re.MULTILINE)


def lines_of(program: str) -> int:
    """Count the lines of the function ``main``, without empty ones."""
    body = program[program.index("async def main") :]
    lines = [line for line in body.splitlines() if line.strip()]
    return sum(line == lines[0] or line.startswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("section", "clients"),
    [
        (
            "The same program",
            ["pydanube", "aiokafka", "nats-py", "aio-pika", "redis-py"],
        ),
        ("The order service", ["pydanube", "FastStream", "aiokafka", "nats-py"]),
        (
            "The order service with results",
            ["pydanube", "FastStream", "aiokafka", "nats-py"],
        ),
    ],
)
def test_line_counts_are_those_of_the_programs(
    section: str, clients: list[str]
) -> None:
    text = (
        PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    )
    counted = [lines_of(program) for program in PROGRAM.findall(text)]
    stated = {name: int(count) for name, count in ROW.findall(text)}
    assert list(stated) == clients
    assert list(stated.values()) == counted
    assert stated["pydanube"] == min(counted)
