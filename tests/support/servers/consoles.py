"""The web console as a process, and the rules that all its pages keep."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.drivers.commands import end, start_danube

PICTURES = os.environ.get("CONSOLE_PICTURES", "")
"""The directory in which the pages are saved as pictures, if there is one."""
EVIL = "<img src=x onerror='window.isAttacked = true'><script>window.isAttacked = 1"
"""A text that must not become part of a page's markup."""

CONTRAST = """
(selector) => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => {
    const part = each / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length < 4 || color[3] > 0.9) return color;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll(selector)].map((element) => {
    const pair = [parse(getComputedStyle(element).color), behind(element)].map(light);
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  });
}
"""
UNLABELLED = """
() => [...document.querySelectorAll("input, textarea, button, select")]
  .filter((each) => each.offsetParent && !each.closest("[aria-hidden=true]"))
  .filter((each) => !(each.ariaLabel || each.innerText.trim() || each.labels?.length
    || each.closest("label")?.innerText.trim()))
  .map((each) => each.outerHTML.slice(0, 200))
"""
READ = ("h1", "td", "th", ".muted", ".badge", "nav a", "dt", ".q-btn")
"""Selectors of elements with text."""


@contextmanager
def running_console(*options: str, logs: str = "", **variables: str) -> Iterator[str]:
    """Run ``danube console`` during the body; yield its address; *logs*: its log."""
    process = start_danube("console", "--port", "0", *options, **variables)
    try:
        line = process.stdout.readline().decode()
        yield re.search(r"http://\S+", line)[0]
    finally:
        code, _, errors = end(process, 15)
    assert code == 143, errors
    assert "Traceback" not in errors
    assert logs in errors


async def check_page(page: Any, what: str) -> None:
    """Check labels, contrast and width, and that no text has become markup."""
    assert await page.evaluate(UNLABELLED) == [], what
    for selector in READ:
        found = await page.evaluate(CONTRAST, selector)
        assert min(found, default=21) >= 4.5, (what, selector)
    scrolled = "document.documentElement.scrollWidth - innerWidth"
    assert await page.evaluate(scrolled) <= 0, what
    assert await page.evaluate("window.isAttacked") is None


async def take_picture(page: Any, name: str, *, is_full: bool = False) -> None:
    """Save the page as a picture, if pictures are wanted."""
    if PICTURES:
        file = Path(PICTURES) / f"{name}.png"
        await page.screenshot(path=file, full_page=is_full, animations="disabled")
