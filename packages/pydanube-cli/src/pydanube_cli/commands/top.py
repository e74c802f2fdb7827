"""`danube top`: shows the activity of a broker's topics, continuously."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable

import typer

from pydanube.client.client import DEFAULT_URL, Client, connect
from pydanube.client.described_topics import describe_topics
from pydanube.model.activity import ORDERS, Activity, Sample, activities
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.quantity_formats import format_duration
from pydanube.model.shown_text import printable
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.presentation.activity import screen
from pydanube_cli.presentation.output import OutputFormat, print_json, print_line
from pydanube_cli.presentation.quantities import parse_duration

TOPICS_MAX = 1000
"""Further topics are not examined, so that watching a broker does not load it."""
INTERVAL_S_MIN = 0.1

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube top",
    "danube top '/shop/*' --sort lag --interval 5s",
    "danube top --format json",
)
def top(
    pattern: parameters.Pattern = None,
    *,
    interval: str = "2s",
    sort: str = "rate",
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show the activity of topics, continuously until Ctrl-C.

    For each topic, it shows the messages that are published and delivered per second,
    the lag of the subscription that is furthest behind, producers, consumers and the
    size of the stored messages. If standard output is not a terminal, and with --format
    json, it measures one interval, prints the result and ends. It examines the first
    1,000 topics and partitions.

    Args:
        interval (DURATION): The time between two samples, at least 0.1s.
        sort (rate|lag|size|name): The order of the topics.
    """
    interval_s = parse_duration(interval)
    if interval_s < INTERVAL_S_MIN:
        raise InvalidRequest(f"--interval is {interval}; it must be at least 0.1s")
    if sort not in ORDERS:
        raise InvalidRequest(f"--sort is {sort!r}; use one of {', '.join(ORDERS)}")
    is_live = output_format is OutputFormat.TABLE and sys.stdout.isatty()

    async def work(interruption: Interruption) -> None:
        async with connect(url) as client, interruption.until_requested():
            before = await _sample(client, pattern)
            await asyncio.sleep(interval_s)
            after = await _sample(client, pattern)
            if is_live:
                view = _View(f"{url}  every {format_duration(interval_s)}", sort)
                await view.watch(client, pattern, interval_s, before, after)
                return
            found = activities(before, after, sort)
            if output_format is OutputFormat.JSON:
                print_json({"topics": found, "storage": after.storage})
                return
            for line in screen(after, found, title=url, width=None, height=None):
                print_line(line)

    run(work)


class _View:
    """The screen of a terminal, which is drawn again for each sample and size."""

    def __init__(self, title: str, order: str) -> None:
        # It takes a while.
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        self._title = title
        self._order = order
        self._text: Callable[[str], object] = Text
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._shown: tuple[Sample, list[Activity], str]

    async def watch(
        self,
        client: Client,
        pattern: str | None,
        interval_s: float,
        before: Sample,
        after: Sample,
    ) -> None:
        """Show *after*, and later samples, until cancelled."""
        loop = asyncio.get_running_loop()
        with self._live:
            loop.add_signal_handler(signal.SIGWINCH, self._draw_again)
            try:
                self._draw(after, activities(before, after, self._order))
                while True:
                    await asyncio.sleep(interval_s)
                    try:
                        before, after = after, await _sample(client, pattern)
                    except BrokerError as error:
                        self._draw(*self._shown[:2], error)
                    else:
                        self._draw(after, activities(before, after, self._order))
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)

    def _draw(
        self, sample: Sample, found: list[Activity], error: BrokerError | None = None
    ) -> None:
        told = self._title if error is None else f"no new sample: {error}"
        title = f"{time.strftime('%H:%M:%S')}  {printable(told)}"
        self._shown = sample, found, title
        self._draw_again()

    def _draw_again(self) -> None:
        sample, found, title = self._shown
        width, height = self._console.size
        lines = screen(sample, found, title=title, width=width, height=height)
        text: object = self._text("\n".join(lines[:height]))
        self._live.update(text, refresh=True)  # type: ignore[arg-type]


async def _sample(client: Client, pattern: str | None) -> Sample:
    topics, count = await describe_topics(client, pattern, TOPICS_MAX)
    return Sample(
        taken_at=time.monotonic(),
        topics=topics,
        topic_count=count,
        storage=await client.storage.describe(),
    )
