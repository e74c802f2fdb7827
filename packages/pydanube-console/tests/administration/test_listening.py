"""The rules for the address of the MCP server."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_console.administration.pure.listening import allowed_hosts, check_exposure


def test_only_other_machines_need_credentials_and_tls():
    assert not check_exposure("127.0.0.1", uses_tls=False, may_be_plain=False)
    assert check_exposure("0.0.0.0", uses_tls=True, may_be_plain=False)
    assert check_exposure("10.0.0.1", uses_tls=False, may_be_plain=True)
    with pytest.raises(InvalidRequest, match="without encryption"):
        check_exposure("10.0.0.1", uses_tls=False, may_be_plain=False)


def test_hosts_have_the_port_unless_they_name_one():
    found = allowed_hosts("::1", 80, ["mcp.example", "other.example:443"])
    assert "127.0.0.1:80" in found
    assert "[::1]:80" in found
    assert {"mcp.example:80", "mcp.example", "other.example:443"} <= set(found)
    assert "other.example:443:80" not in found
