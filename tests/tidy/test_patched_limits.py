"""Tests pass limits as arguments, and do not patch the constants of modules."""

from __future__ import annotations

import ast
import re
from functools import cache

from support.project import files_of_tests, name_of, text_of, tree_of

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
LEFT = {
    "channel.PARTITIONS_LOOKUP_INTERVAL_S",
    "consumers.CREDIT_BYTES_MAX",
    "dead_letters.RETRIES",
    "deleted_topics.RETRIES",
    "http_quotas.HOLD_S_MAX",
    "internal_publishing.SOURCES_MAX",
    "message_spans.EXTENDED_SPANS_MAX",
    "producers.HELD_BYTES_MAX",
    "producers.IDLE_PRODUCERS_MAX",
    "producers.KEEPALIVE_INTERVAL_S",
    "quota_holds.RECHECK_S",
    "reader.FETCH_WAIT_S",
    "reader.FOLLOWED_PARTITIONS_MAX",
    "reader.PARTITIONS_LOOKUP_INTERVAL_S",
    "scan_reader.BATCH_BYTES_MAX",
    "scans.TASK_BYTES_MIN",
    "schema_operations.VERSIONS_BYTES_MAX",
    "shared_sqlite.CHANGES_KEPT",
    "shared_sqlite.LOOK_INTERVAL_S",
    "shared_sqlite.TRIM_INTERVAL",
    "sqlite_module.LOCK_TIMEOUT_S",
    "work.STALL_S",
    "work.SURPLUS_WAIT_S",
    "work.WARM_UP_S",
}
"""The constants that older tests patch.  Take names away, and add none."""


def test_no_other_constant_of_a_module_is_patched() -> None:
    assert _patched().keys() - LEFT == set(), "pass the limit as an argument"


def test_constants_that_are_no_longer_patched_are_not_left() -> None:
    assert LEFT - _patched().keys() == set()


@cache
def _patched() -> dict[str, str]:
    """Return the constants that tests patch, each with the name of a test file."""
    found = {}
    for path in files_of_tests():
        if "setattr(" not in text_of(path):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = _patched_name(node) if node.func.attr == "setattr" else ""
                if CONSTANT.fullmatch(name.rpartition(".")[2]):
                    found[name] = name_of(path)
    return found


def _patched_name(call: ast.Call) -> str:
    """Return what ``monkeypatch.setattr`` replaces, as ``module.NAME``."""
    match call.args:
        case [ast.Constant(value=str(path)), _]:
            module, _, name = path.rpartition(".")
            return f"{module.rpartition('.')[2]}.{name}"
        case [target, ast.Constant(value=str(name)), _]:
            return f"{ast.unparse(target)}.{name}"
    return ""
