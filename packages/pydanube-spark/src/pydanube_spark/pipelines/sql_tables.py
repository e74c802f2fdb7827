"""
The tables that an SQL query reads, from its text.  Pure.

Spark's parser would need a session, which takes seconds to start.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_SKIPPED = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL
)
_TOKEN = re.compile(r"`(?:[^`]|``)+`|\w+|[^\s\w]")
_BEFORE_TABLES = frozenset({"from", "join", "table"})
_AFTER_TABLE = frozenset(
    {"where", "group", "order", "having", "limit", "union", "intersect", "except"}
    | {"on", "using", "left", "right", "full", "inner", "cross", "semi", "anti"}
    | {"natural", "lateral", "window", "sort", "cluster", "distribute", "select"}
    | {"pivot", "unpivot"}
)


def tables_in(sql: str, known: Collection[str]) -> list[str]:
    """
    Return those of *known* that *sql* reads, in the order of the text.

    These are the names after FROM, JOIN and TABLE.  Names are compared as Spark does,
    without regard to case.
    """
    by_name = {name.lower(): name for name in known}
    text = _SKIPPED.sub(" ", sql)
    found: dict[str, None] = {}
    expects_table = is_in_list = False
    # The states around an open parenthesis, whose contents may be a query.
    outer: list[bool] = []
    for part in _TOKEN.findall(text):
        word = part.strip("`").lower()
        if part == "(":
            outer.append(is_in_list or expects_table)
            is_in_list = False
        elif part == ")":
            is_in_list = outer.pop() if outer else False
            expects_table = False
        elif word in _BEFORE_TABLES and part[0] != "`":
            expects_table = True
        elif part == "," and is_in_list:
            expects_table, is_in_list = True, False
        elif expects_table:
            if word == "lateral":
                continue
            expects_table, is_in_list = False, True
            if word in by_name:
                found.setdefault(by_name[word])
        elif word in _AFTER_TABLE and part[0] != "`":
            is_in_list = False
    return list(found)
