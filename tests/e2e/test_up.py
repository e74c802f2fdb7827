"""`danube up` runs the system that it has written, until Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys

import httpx
import pytest

from support.servers.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

UP = (sys.executable, "-u", "-m", "pydanube_cli", "up")


def wait_for(process, *texts):
    """Read the log until all *texts* were in it."""
    left = set(texts)
    for line in process.stdout:
        left = {each for each in left if each not in line}
        if not left:
            return
    raise AssertionError(f"the system ended without {left}")


def test_the_example_bills_orders_and_keeps_dead_letters(tmp_path):
    subprocess.run([*UP, "--init", str(tmp_path)], check=True)
    stream, web = free_port(), free_port()
    (tmp_path / "broker.yaml").write_text(
        f"listen: {{stream_port: {stream}, grpc_port: 0, admin_port: 0, http_port: 0}}"
    )
    for path in tmp_path.glob("programs/*.py"):
        text = path.read_text().replace("8000", str(web))
        url = f'connect("danube://127.0.0.1:{stream}")'
        path.write_text(text.replace("connect()", url))
    process = subprocess.Popen(
        [*UP, str(tmp_path), "--no-console"], stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for(process, "created the shared subscription billing")
        shop = f"http://127.0.0.1:{web}"
        retrying = httpx.HTTPTransport(retries=9)
        with httpx.Client(base_url=shop, timeout=20, transport=retrying) as client:
            client.post("/orders?amount=5").raise_for_status()
            client.post("/orders?amount=-5").raise_for_status()
            wait_for(process, "billed 5.0", "attempt 2: ValueError: -5.0")
            seen = client.get("/seen").json()
            assert seen["orders"] == 2
            assert "Shop" in client.get("/").text
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
