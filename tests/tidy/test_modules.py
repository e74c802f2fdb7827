"""Habits that a reader of the source may rely on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from support.project import ROOT, lines_with, modules, name_of, text_of, texts, tree_of

NO_NAMES = {"base", "common", "core", "helper", "helpers", "manager", "managers"}
NO_NAMES |= {"misc", "util", "utils"}

LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

# Somebody's home directory, or where this checkout happens to be.
MACHINE_PATH = re.compile(rf"(?<![\w.-])(/root/|/home/\w+/|/Users/\w+/|{ROOT}\b)")

MERGE_CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)

NESTED_TEST = re.compile(r"^ +(async )?def test\(", re.MULTILINE)

TESTED = [*ROOT.glob("packages/*"), *ROOT.glob("tests/bench"), *ROOT.glob("tests/demo")]


def test_a_module_is_named_after_its_subject() -> None:
    vague = [
        name_of(path)
        for path in modules()
        if NO_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)
    ]
    assert vague == []


def test_a_module_has_a_docstring() -> None:
    silent = [
        name_of(path)
        for path in modules()
        if not text_of(path).startswith('"""') and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert _lines_with(LEFT_OVER) == []


def test_no_path_of_a_machine_is_written_down() -> None:
    assert _lines_with(MACHINE_PATH) == []


def test_no_merge_conflict_is_left() -> None:
    assert _lines_with(MERGE_CONFLICT) == []


def test_a_test_is_not_nested_in_another_function() -> None:
    assert _lines_with(NESTED_TEST) == []


@pytest.mark.parametrize("floor", TESTED, ids=name_of)
def test_each_unit_test_answers_for_one_source_file(floor: Path) -> None:
    if floor.parent.name == "packages":
        tests = floor / "tests"
        [source] = floor.glob("src/pydanube*")
    else:
        tests = floor
        [source] = [*ROOT.glob(floor.name), *ROOT.glob(f"examples/{floor.name}")]
    strangers = [
        name_of(path)
        for path in tests.rglob("test_*.py")
        if not _answers_for(path, tests, source)
    ]
    assert strangers == []


def _answers_for(path: Path, floor: Path, tested: Path) -> bool:
    place = tested / path.parent.relative_to(floor)
    subject = path.stem.removeprefix("test_")
    places = (place, place / "pure")
    return (place / subject).is_dir() or any(
        (each / f"{subject}.py").exists() for each in places
    )


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        line
        for path in texts()
        # This file has to name what it looks for.
        if path != Path(__file__)
        for line in lines_with(pattern, path)
    ]
