"""What differs between worlds: the list of tests, and the page for users."""

import re
from fnmatch import fnmatchcase
from functools import cache

from support.project import ROOT, text_of
from support.worlds.current import OTHER_WORLDS
from support.worlds.differences import (
    DIFFERENCES,
    EXAMPLE,
    FOR_DEVELOPERS,
    find_difference,
)

TEST = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
PAGE = ROOT / "docs" / "guide" / "cluster-differences.md"


def test_every_reason_for_users_is_a_row_of_the_page_and_every_row_a_reason():
    rows = [
        line.split(" | ")[0].removeprefix("| ")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| What", "| ---"))
    ]
    reasons = {reason for world in DIFFERENCES.values() for reason in world}
    assert sorted(rows) == sorted(reasons - FOR_DEVELOPERS)


def test_every_difference_names_tests_that_exist():
    unknown = [
        pattern
        for world in DIFFERENCES.values()
        for patterns in world.values()
        for pattern in patterns
        if not any(
            fnmatchcase(each, pattern.partition(EXAMPLE)[0])
            for each in names_in(pattern.partition("::")[0])
        )
    ]
    assert unknown == []


def test_every_difference_is_one_of_a_world():
    assert DIFFERENCES.keys() == OTHER_WORLDS.keys()
    excepted = (
        "packages/pydanube/tests/client/connections/test_connection.py::test_x[cluster]"
    )
    assert find_difference("cluster", excepted) is not None
    assert find_difference("memory", excepted) is None


@cache
def names_in(path):
    root = ROOT if path.startswith("packages/") else ROOT / "tests"
    [file] = root.glob(path)
    name = file.relative_to(root)
    return [f"{name}::{each}" for each in TEST.findall(text_of(file))]
