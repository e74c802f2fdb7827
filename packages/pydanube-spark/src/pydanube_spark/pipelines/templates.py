"""
The templates of ``danube pipeline init``.

They are the project's examples: an installed package has them beside this file, a
checkout in its directory ``examples``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pydanube.declarations.pure.problems import listed
from pydanube.model.errors import AlreadyExists, InvalidRequest
from pydanube.model.suggestions import did_you_mean

DEFAULT = "topic-to-delta"
DECLARATIVE = "declarative"


def templates() -> dict[str, Path]:
    """Return the directory of each template by name."""
    packaged = Path(__file__).parent / "template_files"
    root = (
        packaged if packaged.is_dir() else Path(__file__).parents[3] / "template_files"
    )
    found = {
        each.name: each for each in (root / "pipelines").iterdir() if each.is_dir()
    }
    found[DECLARATIVE] = root / DECLARATIVE
    return dict(sorted(found.items()))


def write_template(name: str, directory: Path) -> list[Path]:
    """
    Write the files of the template *name* into *directory*, and return them.

    Raises:
        InvalidRequest: There is no such template.
        AlreadyExists: One of the files exists; none was written.
    """
    known = templates()
    if name not in known:
        near = did_you_mean(name, known) or f"; there are {listed(known)}"
        raise InvalidRequest(f"there is no template {name}{near}")
    root = known[name]
    found = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    files = sorted(
        path
        for path in found
        # Running an example in its directory leaves such files.
        if not any(part.startswith((".", "__")) for part in path.parts)
    )
    there = [directory / each for each in files if (directory / each).exists()]
    if there:
        raise AlreadyExists(f"{there[0]} already exists; nothing was written")
    for each in files:
        (directory / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / each, directory / each)
    return [directory / each for each in files]
