"""A browser for tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.servers.programs import required_program

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-dev-shm-usage"),
)
TIMEOUT_MS = 60_000


@asynccontextmanager
async def running_browser() -> AsyncIterator[Any]:
    """Run a browser during the body; fail with an instruction if there is none."""
    playwright = pytest.importorskip("playwright.async_api")
    program = shutil.which("google-chrome") or required_program("chromium", "chromium")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=program, args=list(ARGUMENTS), timeout=TIMEOUT_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened_page(
    browser: Any, *, width: int = 1280, scheme: str = "light"
) -> AsyncIterator[Any]:
    """Open a page of a new user; what goes wrong in it is in ``page.problems``."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    page.problems = []
    page.on(
        "console",
        lambda message: message.type == "error" and page.problems.append(message.text),
    )
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    try:
        yield page
    finally:
        await context.close()
