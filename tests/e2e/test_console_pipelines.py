"""The console shows pipelines by their state directories, and stops them."""

from itertools import pairwise

import pytest

pytest.importorskip("nicegui")

import pydanube
from pydanube_spark.pipelines.graph import Edge, Graph, Node, NodeKind
from pydanube_spark.pipelines.pure.progress import (
    QueryProgress,
    QueryState,
    RunState,
    RunStatus,
)
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.run_directory import Entry, RunDirectory
from pydanube_spark.pipelines.state import StateDirectory
from support.servers.browsers import opened_page, running_browser
from support.servers.consoles import EVIL, check_page, running_console, take_picture
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated("console")]

FACTS = {
    "file": "/etc/orders.yaml",
    "pid": 7,
    "host": "worker-1",
    "since": "2026-01-01",
}


def query(name, **facts):
    known = {"state": QueryState.RUNNING, "batch": 41, "batches": 42, "rows": 12_345}
    rates = {"input_rate": 480.0, "processing_rate": 520.5, "duration_s": 1.25}
    return QueryProgress(
        name=name, writes_to=f"table {name}", lag=250, **(known | rates | facts)
    )


def write_run(directory, name, *queries, **facts):
    """Write what a run of the pipeline *name* writes."""
    state = StateDirectory(directory)
    state.path.mkdir()
    facts = FACTS | facts
    state.write_record(RunRecord(pipeline=name, mark=None, **FACTS))
    state.write_status(
        RunStatus(pipeline=name, updated="now", queries=list(queries), **facts)
    )
    kinds = (NodeKind.SOURCE, NodeKind.STEP, NodeKind.STEP, NodeKind.SINK)
    names = ("orders", "parsed", "totals", "table")
    whats = ("topic /default/orders", EVIL, "totals.sql", "delta /lake/totals, append")
    nodes = [Node(*each) for each in zip(names, kinds, whats, strict=True)]
    edges = [Edge(first.id, second.id) for first, second in pairwise(nodes)]
    edges.append(Edge(nodes[0].id, nodes[2].id))
    state.write_graph(Graph(name, nodes, edges))
    lines = [f"line {number} {EVIL}\n" for number in range(1000)]
    state.log_file.write_text("".join(lines))
    return state


@pytest.mark.soak
async def test_pipelines_are_seen_and_stopped(tmp_path):
    running = RunState.RUNNING
    state = write_run(
        tmp_path / "a", "orders", query("totals"), query("raw"), state=running
    )
    broken = query("totals", state=QueryState.FAILED, error=EVIL)
    failed = write_run(tmp_path / "b", "returns", broken, state=RunState.FAILED)
    entry = Entry(pipeline="orders", file="f", state_directory=str(state.path))
    RunDirectory(tmp_path / "user" / "pipelines").add(entry)
    with (
        state.locked("test"),
        BrokerProcess(tmp_path / "data") as broker,
        running_console(
            *("--url", broker.url, "--pipelines", "local"),
            *("--pipelines", str(failed.path)),
            logs="a user: stop the pipeline orders",
            DANUBE_STATE=str(tmp_path / "user"),
        ) as console,
    ):
        async with running_browser() as browser:
            async with opened_page(browser) as page:
                await look(page, console, "1280-light")
                await stop(page, state)
            async with opened_page(browser, width=390, scheme="dark") as page:
                await look(page, console, "390-dark")


async def look(page, console, suffix):
    await page.goto(f"{console}/pipelines")
    await page.get_by_role("row", name="orders running").wait_for()
    # On a narrow screen, the page of the pipeline has its error.
    await page.get_by_role("row", name="returns died").wait_for()
    await check_page(page, "/pipelines")
    await take_picture(page, f"pipelines-{suffix}")
    await page.keyboard.press("/")
    await page.get_by_label("Search topics").fill("orders")
    await page.get_by_role("link", name="orders pipeline").wait_for()
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="orders", level=1).wait_for()
    await page.get_by_role("row", name="totals running").wait_for()
    await page.get_by_role("img", name="Rows per second: read").wait_for()
    await check_page(page, "/pipeline")
    await take_picture(page, f"pipeline-{suffix}", is_full=True)
    await page.get_by_role("tab", name="Graph").click()
    await page.get_by_role("img", name="Graph of orders with 4 nodes").wait_for()
    await page.get_by_role("row", name="totals step").wait_for()
    await check_page(page, "/pipeline, its graph")
    await take_picture(page, f"pipeline-graph-{suffix}", is_full=True)
    await page.get_by_role("tab", name="Log").click()
    await page.get_by_text("line 999").wait_for()
    assert await page.get_by_text("line 10 ").count() == 0
    await check_page(page, "/pipeline, its log")
    await take_picture(page, f"pipeline-log-{suffix}")
    assert page.problems == []


async def stop(page, state):
    await page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name="Stop")
    assert await button.is_disabled()
    await dialog.get_by_label("Type orders").fill("orders")
    await button.click()
    await page.get_by_text("stops after its current micro-batches").wait_for()
    assert state.is_stop_requested()


async def test_pipelines_need_a_permission_and_logs_payloads(tmp_path):
    settings, key_file = tmp_path / "broker.yaml", tmp_path / "bootstrap.key"
    settings.write_text(
        f"security: {{enabled: true, bootstrap_key_file: {key_file}}}\n"
    )
    state = write_run(tmp_path / "a", "orders", state=RunState.DONE)
    with (
        BrokerProcess(tmp_path / "data", "--config", str(settings)) as broker,
        running_console(
            *("--url", broker.url, "--pipelines", str(state.path)),
            *("--payloads", "mask"),
        ) as console,
    ):
        admin_key = key_file.read_text().strip()
        async with pydanube.connect(broker.url, api_key=admin_key) as admin:
            key = (await admin.security.create_api_key("ada")).key
        async with running_browser() as browser, opened_page(browser) as page:
            await sign_in(page, f"{console}/pipelines", admin_key)
            link = page.get_by_role("link", name="orders")
            address = await link.get_attribute("href")
            await page.goto(f"{console}{address}&tab=log")
            await page.get_by_text("shows no logs").wait_for()
        async with running_browser() as browser, opened_page(browser) as page:
            await sign_in(page, f"{console}{address}", key)
            await page.get_by_text("need the permission cluster_admin").wait_for()
            assert await page.get_by_text("orders").count() == 0


async def sign_in(page, address, key):
    await page.goto(address)
    await page.get_by_label("API key or token").fill(key)
    await page.get_by_role("button", name="Sign in").click()
