"""Command lines that documents show."""

from __future__ import annotations

import re
import shlex

from pydanube_cli.main import load

OUTPUT_FILE = re.compile(r" > ([\w./-]+)$")
"""The end of a line whose output goes to a file."""
NO_FILES = "inspect"
"""Commands whose arguments must exist, which those of examples do not."""


def check_line(line: str) -> None:
    """Fail if a `danube` command in *line* has invalid arguments."""
    for part in re.sub(OUTPUT_FILE, "", line).split(" | "):
        name, *words = shlex.split(part)
        if name != "danube" or not words or words[0].startswith("-"):
            continue
        command = load(words.pop(0))
        if command.name == NO_FILES:
            return
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)
