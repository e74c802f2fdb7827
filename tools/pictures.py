"""
Make the pictures of the README and the home page: ``docs/images``.

    python tools/pictures.py

It starts a broker with a small shop, which publishes and processes messages, and the
web console; Chromium takes the pictures.  Look at them before you commit them.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from playwright.async_api import async_playwright

import pydanube

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
DANUBE = [sys.executable, "-m", "pydanube_cli"]
SECONDS = 75
"""How long the shop runs before the pictures, so that its rates have a history."""
TOPICS = {"/shop/orders": 400, "/shop/clicks": 2_500, "/shop/payments": 70}
"""Topics, and the messages that each gets in a second."""
TERMINAL = """\
<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #1e2430; display: inline-block }}
pre {{ margin: 0; padding: 18px 24px; color: #d8dee9;
  font: 15px/1.5 "DejaVu Sans Mono", monospace }}
b {{ color: #88c0d0 }}
</style><pre><b>$ danube top</b>
{text}</pre>
"""


@contextmanager
def started(*arguments: str, line: str) -> Iterator[str]:
    """Run a command of danube; yield the address in the output behind *line*."""
    with subprocess.Popen(
        [*DANUBE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            for each in process.stdout:
                if found := re.search(line, each):
                    yield found[0]
                    break
        finally:
            process.terminate()


async def trade(url: str) -> None:
    """Publish and process messages until cancelled."""
    async with AsyncExitStack() as opened, pydanube.connect(url) as client:
        await client.namespaces.create("shop")

        @client.worker(
            "/shop/orders",
            subscription="billing",
            publish="/shop/invoices",
            concurrency=100,
        )
        async def bill(order: str) -> str:
            return f"invoice of {order}"

        @client.worker("/shop/payments", subscription="ledger")
        async def book(payment: str) -> None:
            # A slow program, so that one subscription has a lag.
            await asyncio.sleep(0.01)

        @client.worker("/shop/clicks", subscription="warehouse", batch=500)
        async def load(clicks: list[str]) -> None:
            pass

        producers = {
            topic: await opened.enter_async_context(client.producer(topic))
            for topic in TOPICS
        }
        async with client.running_workers():
            for number in itertools.count():
                for topic, rate in TOPICS.items():
                    # The rates rise and fall a little.
                    count = rate // 10 + (number * 7) % (rate // 40 + 1)
                    await producers[topic].send_batch(
                        [f"{topic[6:]} {number}-{each}" for each in range(count)]
                    )
                await asyncio.sleep(0.1)


async def take(url: str, console: str) -> None:
    """Take the pictures."""
    program = shutil.which("google-chrome") or shutil.which("chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        page = await browser.new_page(
            viewport={"width": 1240, "height": 760}, color_scheme="light"
        )
        await page.goto(console)
        # The charts fill while the page is open.
        await asyncio.sleep(SECONDS)
        await page.screenshot(path=IMAGES / "console.png")
        top = await asyncio.create_subprocess_exec(
            *[*DANUBE, "top", "--url", url, "--interval", "3s"],
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"COLUMNS": "100"},
        )
        text = (await top.communicate())[0].decode().rstrip()
        await page.set_content(TERMINAL.format(text=html.escape(text)))
        await page.locator("pre").screenshot(path=IMAGES / "top.png")
        await browser.close()


async def main() -> None:
    """Make both pictures."""
    with tempfile.TemporaryDirectory() as directory:
        names = ("stream", "grpc", "admin", "http")
        ports = [word for each in names for word in (f"--{each}-port", "0")]
        with (
            started(
                "broker", "--data-dir", directory, *ports, line=r"danube://\S+\d"
            ) as url,
            started("console", "--port", "0", "--url", url, line=r"http://\S+") as page,
        ):
            async with asyncio.TaskGroup() as tasks:
                trading = tasks.create_task(trade(url))
                await take(url, page)
                trading.cancel()


if __name__ == "__main__":
    asyncio.run(main())
