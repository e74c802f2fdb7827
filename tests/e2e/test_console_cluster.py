"""The console shows the brokers of partitions, and moves a topic to another one."""

import pytest

pytest.importorskip("nicegui")

import pydanube
from support.servers.browsers import opened_page, running_browser
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.consoles import check_page, running_console, take_picture

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

TOPIC = "/default/orders"


async def test_partition_is_moved_to_another_broker(tmp_path, etcd):
    settings = cluster_settings(etcd.url, tmp_path)
    with (
        cluster_broker(tmp_path, settings, "one") as first,
        cluster_broker(tmp_path, settings, "two"),
        running_console("--url", first.url) as console,
    ):
        async with pydanube.connect(first.url) as client:
            while len(await client.cluster.running_brokers()) < 2:
                pass
            await client.topics.create(TOPIC, partitions=4)
            partition = (await client.topics.partitions(TOPIC))[0]
            owner = (await client.requester.connection(partition)).welcome.broker_id
        async with running_browser() as browser, opened_page(browser) as page:
            other = "two" if owner == "one" else "one"
            await page.goto(f"{console}/topic?name={TOPIC}")
            row = page.get_by_role("row", name=partition)
            await row.get_by_role("cell", name=owner, exact=True).wait_for()
            await move(page, other)
            await page.get_by_text(
                f"{partition} moves from {owner} to {other}"
            ).wait_for()
            await row.get_by_role("cell", name=other, exact=True).wait_for()


async def move(page, other):
    await page.get_by_role("button", name="Move to a broker").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("To broker").click()
    await page.get_by_role("option", name=other, exact=True).click()
    button = dialog.get_by_role("button", name="Move")
    assert await button.is_disabled()
    await dialog.get_by_label(f"Type {TOPIC}").fill(TOPIC)
    await check_page(page, "the dialog that moves")
    await take_picture(page, "topic-move-1280-light")
    await button.click()
