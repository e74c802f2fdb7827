"""The authentication of requests to the MCP server over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import Unauthenticated
from pydanube_console.administration.bearer import Bearer

KEY = "danube_key"


class Directory:
    """Stands for the callers: finds everybody."""

    async def own(self):
        return "own"

    async def identified(self, credentials):
        return credentials


def find(header, *arguments, **options):
    return asyncio.run(Bearer(Directory(), *arguments, **options).find(header))


def test_the_credentials_of_a_caller_are_those_of_the_broker():
    assert find(f"Bearer {KEY}") == KEY
    assert find(f"bearer  {KEY} ", is_required=False) == KEY


def test_a_token_of_the_server_stands_for_its_own_credentials():
    assert find("Bearer sesame", "sesame") == "own"
    with pytest.raises(Unauthenticated, match="not that of this server"):
        find(f"Bearer {KEY}", "sesame", is_required=False)


def test_only_the_own_machine_needs_no_credentials():
    assert find(None, is_required=False) == "own"
    for arguments in ((), ("sesame",)):
        with pytest.raises(Unauthenticated, match="Authorization: Bearer"):
            find(None, *arguments)
    with pytest.raises(Unauthenticated, match="server's token"):
        find(None, "sesame", is_required=False)


@pytest.mark.parametrize("header", ["", "Basic x", "Bearer", "Bearer " + "x" * 9000])
def test_malformed_credentials_are_refused(header):
    with pytest.raises(Unauthenticated):
        find(header, is_required=True)
