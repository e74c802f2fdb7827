"""Servers that tests run close their connections."""

from __future__ import annotations

import ast

from support.project import files_of_tests, name_of, text_of, tree_of

CLOSING = {
    "tests/support/servers/stream_server.py",
    "tests/support/servers/tcp_proxy.py",
}
"""The servers that close what they have just accepted, too."""


def test_servers_of_tests_close_what_they_accept() -> None:
    found = {
        name_of(path)
        for path in files_of_tests()
        if "start_server" in text_of(path)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "start_server"
    }
    assert found == CLOSING, "serve with `stream_server` of tests/support/servers"
