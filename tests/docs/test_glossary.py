"""The glossary names types and modules that exist."""

import re

from support.project import ROOT, SOURCES

REFERENCE = re.compile(r"\| `([\w.]+)` \|$", re.MULTILINE)


def test_every_type_and_module_of_the_glossary_exists():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    names = REFERENCE.findall(text)
    assert len(names) > 40
    assert [name for name in names if not exists(name)] == []


def exists(name):
    *parents, last = name.split(".")
    [source] = [each for each in SOURCES if (each / name.partition(".")[0]).is_dir()]
    place = source.joinpath(*parents)
    if (place / last).is_dir() or (place / f"{last}.py").exists():
        return True
    module = place.with_suffix(".py")
    declaration = re.compile(rf"^(class )?{last}\b", re.MULTILINE)
    return module.exists() and bool(
        declaration.search(module.read_text(encoding="utf-8"))
    )
