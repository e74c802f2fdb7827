"""Servers that tests run close their connections."""

from __future__ import annotations

import ast

from support.project import ROOT, tree_of

CLOSING = {
    "tests/support/servers/stream_server.py",
    "tests/support/servers/tcp_proxy.py",
}
"""The servers that close what they have just accepted, too."""


def test_servers_of_tests_close_what_they_accept() -> None:
    files = [*ROOT.glob("packages/*/tests/**/*.py"), *ROOT.glob("tests/**/*.py")]
    found = {
        str(path.relative_to(ROOT))
        for path in files
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "start_server"
    }
    assert found == CLOSING, "serve with `stream_server` of tests/support/servers"
