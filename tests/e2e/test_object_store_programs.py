"""Programs that use an object store: they end as they should."""

import asyncio
import json
import subprocess
import sys

import pytest

from pydanube.objects.opening import open_objects
from support.servers.object_stores import S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

READER = """
import asyncio, json, sys
from pydanube.objects.opening import open_objects

async def main():
    store = open_objects(sys.argv[1], json.loads(sys.argv[2]))
    ranges = [(at << 16, (at + 1) << 16) for at in range(16)]
    await asyncio.gather(*(store.read("object", *each) for each in ranges))

asyncio.run(main())
"""
PROGRAMS = 12
"""Without the pause at their end, a third of the programs are aborted."""


@pytest.mark.soak
def test_program_that_ends_after_a_read_is_not_aborted(tmp_path):
    with S3Server(tmp_path) as server:
        url, options = server.new_store()
        asyncio.run(open_objects(url, options).put("object", bytes(1 << 20)))
        command = [sys.executable, "-c", READER, url, json.dumps(options)]
        programs = [subprocess.Popen(command) for _ in range(PROGRAMS)]
        assert [program.wait() for program in programs] == [0] * PROGRAMS
