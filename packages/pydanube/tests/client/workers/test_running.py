"""``pydanube.run``."""

import asyncio
import signal
import subprocess
import sys

import pytest
import uvloop

import pydanube

INTERRUPTED = """
import asyncio
import pydanube

async def main():
    try:
        print("ready", flush=True)
        await asyncio.sleep(600)
    finally:
        print("closed", flush=True)

pydanube.run(main())
"""


def test_run_returns_the_result_and_uses_the_fast_loop():
    async def main():
        return asyncio.get_running_loop()

    assert isinstance(pydanube.run(main()), uvloop.Loop)


def test_run_says_how_to_call_it():
    async def main():
        pydanube.run(other)

    other = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="write `await main"):
        asyncio.run(main())
    with pytest.raises(TypeError, match=r"pydanube\.run\(main\(\)\)"):
        pydanube.run(main)


def test_ctrl_c_lets_the_program_close_what_it_opened():
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    stdout, stderr = program.communicate()
    assert stdout == "closed\n"
    assert stderr.endswith("KeyboardInterrupt\n")
    assert program.returncode == -signal.SIGINT
