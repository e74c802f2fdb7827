"""
The web console in a real browser: every page, wide and narrow, light and dark.

With the variable CONSOLE_PICTURES, the pages are also saved as pictures there.
"""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("nicegui")

from playwright.async_api import TimeoutError as PlaywrightTimeout

import pydanube
from pydanube.sync import connect
from support.drivers.commands import start_danube
from support.servers.browsers import opened_page, running_browser
from support.servers.consoles import EVIL, check_page, running_console, take_picture
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated("console")]

TOPIC, CARTS, DEAD = "/default/orders", "/shop/carts", "/default/orders-dead"
TOO_OLD, WITHOUT_USER = 7, 2
"""The dead letters of each reason."""
DEAD_LETTERS = TOO_OLD + WITHOUT_USER
MANY = 2500
"""The partitions of two topics, so that every page is one of 5,000 topics."""
SCHEMAS = [
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]},
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    },
]
PAGES = {
    "/": ("Overview", "Busiest topics"),
    "/topics": ("Topics", CARTS),
    f"/topic?name={TOPIC}": (TOPIC, "Next offset"),
    f"/topic?name={TOPIC}s": (f"{TOPIC}s", "Did you mean"),
    f"/topic?name={TOPIC}&tab=subscriptions": (TOPIC, "It failed too often"),
    f"/topic?name={TOPIC}&tab=segments": (TOPIC, "Segments"),
    f"/topic?name={TOPIC}&tab=settings": (TOPIC, "Retention"),
    f"/messages?topic={TOPIC}": ("Messages", "onerror"),
    f"/dead-letters?topic={TOPIC}&subscription=billing": ("Dead letters", "too old"),
    "/schemas": ("Schemas", "orders"),
    "/schema?subject=orders": ("orders", "Changes since version 1"),
    "/namespaces": ("Namespaces", "shop"),
    "/cluster": ("Cluster", "not part of a cluster"),
    "/connections?text=pydanube": ("Connections", "rates over"),
    "/definitions": ("Definitions", "Choose a file"),
    "/security": ("Security", "everybody may do everything"),
    "/connectors": ("Connectors", "--connectors local"),
    "/pipelines": ("Pipelines", "--pipelines local"),
    "/audit": ("Audit log", "no audit log"),
}
"""The address of each page, its heading, and something that it shows."""


def fill(client):
    """Create what the pages show."""
    client.namespaces.create("shop")
    client.topics.create(CARTS, partitions=3)
    client.namespaces.create("zoo")
    for name in ("/zoo/ants", "/zoo/bees"):
        client.topics.create(name, partitions=MANY)
    client.topics.create(TOPIC)
    client.topics.create(DEAD)
    client.subscriptions.create(TOPIC, "billing", type="shared", start="earliest")
    client.subscriptions.configure(
        TOPIC,
        "billing",
        failure_policy=pydanube.FailurePolicy(
            redeliveries_max=0,
            poison=pydanube.PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
    )
    # In the list, the name of this subscription is the first one.
    client.subscriptions.create(TOPIC, "audit", type="shared", start="earliest")
    client.subscriptions.configure(
        TOPIC,
        "audit",
        failure_policy=pydanube.FailurePolicy(
            redeliveries_max=0, poison=pydanube.PoisonPolicy.BLOCK
        ),
    )
    for each in SCHEMAS:
        client.schemas.register("orders", client_schema(each))
    with client.producer(TOPIC, name="web-1") as producer:
        for number in range(20):
            producer.send(
                json.dumps({"number": number, "note": EVIL}).encode(),
                key=f"user-{number % 3}",
                attributes={"source": EVIL},
            )
    with client.producer(CARTS) as producer:
        producer.send_batch([b"cart"] * 30)
    with client.consumer(TOPIC, subscription="billing", type="shared") as consumer:
        for number in range(DEAD_LETTERS):
            late = f"ValueError: order {number} is too old"
            reason = late if number < TOO_OLD else "KeyError: 'user_id'"
            consumer.receive(timeout_s=30).nack(reason=reason)
        while client.topics.describe(DEAD).end_offset < DEAD_LETTERS:
            pass
    with client.consumer(TOPIC, subscription="audit", type="shared") as consumer:
        consumer.receive(timeout_s=30).nack(reason=EVIL)


def client_schema(definition):
    from pydanube import Schema

    return Schema.avro(json.dumps(definition))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("data")) as broker:
        with connect(broker.url) as client:
            fill(client)
        yield broker


@pytest.fixture(scope="module")
def console(broker):
    with running_console("--url", broker.url) as url:
        yield url


@pytest.fixture
async def browser():
    async with running_browser() as browser:
        yield browser


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.soak),
        pytest.param(390, "light", marks=pytest.mark.soak),
    ],
)
async def test_every_page_is_shown(browser, console, width, scheme):
    async with opened_page(browser, width=width, scheme=scheme) as page:
        for path, (heading, text) in PAGES.items():
            await page.goto(console + path)
            await page.get_by_role("heading", name=heading, level=1).wait_for()
            await page.get_by_text(text).first.wait_for()
            await check_page(page, path)
            name = re.sub(r"\W+", "-", path.strip("/")) or "overview"
            await take_picture(page, f"{name}-{width}-{scheme}")
        assert page.problems == []


async def test_topic_is_found_and_its_messages_are_searched_with_the_keyboard(
    browser, console
):
    async with opened_page(browser) as page:
        await page.goto(console + "/")
        await page.get_by_role("heading", name="Busiest topics").wait_for()
        await page.keyboard.press("/")
        await page.get_by_label("Search topics").fill("orders")
        await page.get_by_role("link", name=TOPIC, exact=False).first.wait_for()
        # What is shown belongs to the first letters still.
        await page.get_by_label("Search topics").fill(TOPIC)
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name=TOPIC, level=1).wait_for()
        await page.get_by_role("link", name="Browse messages").click()
        await page.get_by_text("20 found").wait_for()
        await page.get_by_label("Contains").fill('"number": 7')
        await page.get_by_label("From").fill("earliest")
        await page.get_by_role("button", name="Show", exact=True).press("Enter")
        await page.get_by_text("1 found").wait_for()
        assert page.problems == []


async def test_messages_are_filtered_laid_out_and_downloaded(browser, console):
    async with opened_page(browser, width=390) as page:
        await page.goto(f"{console}/messages?topic={TOPIC}")
        await page.get_by_text("20 found").wait_for()
        await page.get_by_label("Conditions, one per line").fill("value.number >= 18")
        await page.get_by_label("From").fill("0")
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.get_by_text("2 found").wait_for()
        await page.get_by_role("button", name="number", exact=True).click()
        await page.get_by_role("columnheader", name="number").wait_for()
        await page.wait_for_url(re.compile("columns=number"))
        await page.reload()
        await page.get_by_role("columnheader", name="number").wait_for()
        await page.get_by_text("2 found").wait_for()
        await page.get_by_role("button", name="Show message 2").click()
        await page.get_by_role("article").get_by_text("from web-1").wait_for()
        await check_page(page, "the table of messages")
        await take_picture(page, "messages-table-390", is_full=True)
        async with page.expect_download() as loading:
            await page.get_by_role("button", name="Download CSV").click()
        download = await loading.value
        assert download.suggested_filename == "default-orders.csv"
        head, *rows = lines_of(await download.path())
        assert head == "topic,offset,publish_time,key,number"
        assert [row.split(",")[1::2] for row in rows] == [
            ["18", "user-0"],
            ["19", "user-1"],
        ]
        await page.set_viewport_size({"width": 1280, "height": 900})
        await take_picture(page, "messages-table-1280", is_full=True)
        # A download is no page: it has no problems.
        answer = await page.request.get(f"{console}/messages/download?topic=/a/b")
        assert (answer.status, "use jsonl or csv" in await answer.text()) == (400, True)
        assert page.problems == []


async def test_connections_show_their_members_and_are_closed(browser, console, broker):
    async with (
        opened_page(browser, width=390) as page,
        pydanube.connect(broker.url) as client,
        client.consumer(CARTS, subscription="members", name="ada"),
    ):
        await page.goto(f"{console}/connections?text=members")
        # Rates come with the second list, which replaces the first one.
        await page.get_by_text("rates over").wait_for()
        await page.get_by_role("button", name="Show connection 1").click()
        await page.get_by_role("link", name=f"{CARTS}-part-0").wait_for()
        await check_page(page, "the connections")
        await take_picture(page, "connections-members-390", is_full=True)
        [before] = await connections_of(client, "members")
        await page.get_by_role("button", name="Close 127.0.0.1").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Close it").click()
        await page.get_by_text("The connection is closed").wait_for()
        assert before not in await connections_of(client, "members")
        assert page.problems == []


async def connections_of(client, subscription):
    found = await client.cluster.list_connections()
    return [
        each.connection_id
        for each in found.connections
        if subscription in {member.subscription for member in each.members}
    ]


async def test_definitions_are_exported_and_imported(browser, console, broker):
    async with (
        opened_page(browser, width=390) as page,
        pydanube.connect(broker.url) as client,
    ):
        await page.goto(f"{console}/definitions")
        async with page.expect_download() as loading:
            await page.get_by_role("button", name="Export").click()
        download = await loading.value
        found = json.loads("".join(lines_of(await download.path())))
        assert found["topics"]["/zoo/ants"]["partitions"] == MANY
        assert await page.get_by_role("button", name="Import", exact=True).is_disabled()
        found["topics"] = {"/shop/defined": {}, "/zoo/ants": {}}
        content = json.dumps(found).encode()
        file = {"name": "d.json", "mimeType": "application/json", "buffer": content}
        await page.locator("input[type=file]").set_input_files(file)
        await page.get_by_text("1 created").wait_for()
        await page.get_by_text("with partitions is yes, not no").wait_for()
        assert "/shop/defined" not in await client.topics.list()
        await check_page(page, "the planned import")
        await take_picture(page, "definitions-390", is_full=True)
        await page.get_by_role("button", name="Import", exact=True).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Import it").click()
        await page.get_by_role("heading", name="What has changed").wait_for()
        assert "/shop/defined" in await client.topics.list()
        assert page.problems == []


def lines_of(path):
    return Path(path).read_text().splitlines()


async def test_lag_of_a_subscription_is_drawn_over_time(browser, console):
    async with opened_page(browser) as page:
        await page.goto(f"{console}/topic?name={TOPIC}&tab=subscriptions")
        chart = page.get_by_role("img", name="Lag in messages: not acknowledged")
        await chart.wait_for()
        await page.get_by_label("Subscription", exact=True).click()
        await page.get_by_role("option", name="billing").click()
        await page.get_by_role("heading", name="Messages of billing").wait_for()
        await page.get_by_role("img", name="Oldest message: waits").wait_for()
        assert page.problems == []


async def test_charts_show_what_the_broker_remembers(browser, console):
    async with opened_page(browser) as page:
        await page.goto(console)
        await page.get_by_role("button", name="48 hours").click()
        await page.get_by_text("2d ago").first.wait_for()
        await page.goto(f"{console}/topic?name={TOPIC}&tab=subscriptions")
        await page.get_by_role("button", name="1 hour").click()
        await page.get_by_text("1h ago").first.wait_for()


async def test_messages_are_skipped_after_a_preview(browser, console, broker):
    async with opened_page(browser) as page, pydanube.connect(broker.url) as client:
        before = await lag_of(client, "audit")
        await page.goto(f"{console}/topic?name={TOPIC}&tab=subscriptions")
        await page.get_by_role("heading", name="Messages of audit").wait_for()
        await page.get_by_role("button", name="Skip messages").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Messages", exact=True).fill("2")
        skip = dialog.get_by_role("button", name="Skip")
        assert await skip.is_disabled()
        await dialog.get_by_role("button", name="Preview").click()
        await dialog.get_by_text("2 messages are skipped, the first at").wait_for()
        await skip.click()
        await page.get_by_text("audit goes on").wait_for()
        assert await lag_of(client, "audit") == before - 2
        await page.get_by_role("button", name="Skip messages").click()
        await dialog.get_by_text("All that wait").click()
        await dialog.get_by_role("button", name="Preview").click()
        await dialog.get_by_text("messages are skipped; 0 wait then").wait_for()
        await check_page(page, "the dialog that skips")
        assert page.problems == []


async def lag_of(client, name):
    topic = await client.topics.describe(TOPIC)
    [found] = [each for each in topic.subscriptions if each.subscription == name]
    return found.backlog


@pytest.mark.parametrize("width", [1280, 390])
async def test_settings_of_a_topic_are_changed_after_a_preview(
    browser, console, broker, width
):
    async with (
        opened_page(browser, width=width) as page,
        pydanube.connect(broker.url) as client,
    ):
        await client.topics.configure(CARTS, retention=None, seal_age_s=None)
        await page.goto(f"{console}/topic?name={CARTS}&tab=settings")
        await page.get_by_role("button", name="Change settings").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Preview").click()
        await dialog.get_by_text("Nothing changes.").wait_for()
        retention = dialog.get_by_role("switch", name="otherwise that of")
        await retention.click()
        await dialog.get_by_label("Retention: age").fill("7 moons")
        await dialog.get_by_role("button", name="Preview").click()
        await page.get_by_text("retention.age: '7 moons' is not a duration").wait_for()
        await dialog.get_by_label("Retention: age").fill("7d")
        await dialog.get_by_role("button", name="Preview").click()
        try:
            await dialog.get_by_role("row", name="retention inherit").wait_for()
        except PlaywrightTimeout:
            age = await dialog.get_by_label("Retention: age").input_value()
            text = await page.locator("body").inner_text()
            raise AssertionError(f"the field has {age!r}, the page {text}") from None
        await check_page(page, "the form with settings")
        await take_picture(page, f"topic-settings-form-{width}")
        await dialog.get_by_role("button", name="Save").click()
        await page.get_by_text("Saved").wait_for()
        for name in await client.topics.partitions(CARTS):
            policy = (await client.topics.describe(name)).policy
            assert policy.retention.age_s == 604_800
        assert page.problems == []


async def test_topic_is_created_written_and_deleted(browser, console, broker):
    name = "/default/made-by-hand"
    async with opened_page(browser) as page, pydanube.connect(broker.url) as client:
        await page.goto(console + "/topics")
        await page.get_by_role("button", name="New topic").click()
        await page.get_by_label("Name").fill(name)
        await page.get_by_role("button", name="Create").click()
        await page.get_by_role("heading", name=name, level=1).wait_for()
        await page.get_by_role("link", name="Publish").click()
        await page.get_by_label("Payload").fill("by hand")
        await page.get_by_role("button", name="Publish").click()
        await page.get_by_text(f"{name} @ 0").wait_for()
        [batch] = [each async for each in client.read(name)]
        assert batch.payloads == [b"by hand"]
        await page.goto(f"{console}/topic?name={name}")
        await page.get_by_role("button", name="Delete topic").click()
        delete = page.get_by_role("button", name="Delete", exact=True)
        assert await delete.is_disabled()
        await page.get_by_label(f"Type {name}").fill(name)
        await delete.click()
        await page.get_by_role("heading", name="Topics", level=1).wait_for()
        assert name not in await client.topics.list()
        assert page.problems == []


async def test_dead_letters_are_handled_by_reason(browser, console, broker):
    async with opened_page(browser) as page, pydanube.connect(broker.url) as client:
        before = (await client.topics.describe(TOPIC)).end_offset
        await page.goto(f"{console}/dead-letters?topic={TOPIC}&subscription=billing")
        await page.get_by_text(f"{DEAD_LETTERS} dead letters").wait_for()
        link = page.get_by_role("link", name=f"Dead letters {DEAD_LETTERS}")
        await link.first.wait_for()
        row = page.get_by_role("row", name="ValueError order <number> is too old 7")
        await row.get_by_role("button", name="Only these").click()
        await page.get_by_text(f"{TOO_OLD} dead letters of {DEAD_LETTERS}").wait_for()
        await take_picture(page, "dead-letters-group", is_full=True)
        await page.get_by_role("button", name="Replay 5 first").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Replay", exact=True).click()
        await page.get_by_text("2 dead letters of 4").wait_for()
        assert await page.get_by_role("button", name="Replay 5 first").is_disabled()
        assert (await client.topics.describe(TOPIC)).end_offset == before + 5
        await page.get_by_role("button", name="Drop dead letter 5").click()
        await dialog.get_by_role("button", name="Drop", exact=True).click()
        await page.get_by_text("1 dead letter of 3").wait_for()
        await page.get_by_role("button", name="Edit dead letter 6").click()
        await dialog.get_by_label("Payload").fill("mended")
        await dialog.get_by_role("button", name="Publish").click()
        await page.get_by_text("2 dead letters", exact=True).wait_for()
        await page.get_by_role("button", name="Drop all 2").click()
        await dialog.get_by_role("button", name="Drop", exact=True).click()
        await page.get_by_text("0 dead letters").wait_for()
        for each in ("Replay all", "Drop all"):
            assert await page.get_by_role("button", name=each).is_disabled()
        batches = [each async for each in client.read(TOPIC, start=before)]
        assert [each.payload for batch in batches for each in batch][5:] == [b"mended"]
        assert page.problems == []


async def test_users_sign_in_and_see_what_they_may(browser, tmp_path):
    settings = tmp_path / "broker.yaml"
    key_file = tmp_path / "bootstrap.key"
    settings.write_text(
        f"security: {{enabled: true, bootstrap_key_file: {key_file}}}\n"
    )
    with (
        BrokerProcess(tmp_path / "data", "--config", str(settings)) as broker,
        running_console("--url", broker.url) as console,
    ):
        admin_key = key_file.read_text().strip()
        async with pydanube.connect(broker.url, api_key=admin_key) as admin:
            await admin.topics.create(TOPIC)
            await admin.topics.create("/default/secret")
            await admin.security.add_binding(
                "user:ada", ["viewer", "consumer"], [TOPIC]
            )
            key = (await admin.security.create_api_key("ada")).key
        await sign_in_and_out(browser, console, key)


async def sign_in_and_out(browser, console, key):
    async with opened_page(browser, width=390) as page:
        await page.goto(f"{console}/topics")
        await page.get_by_label("API key or token").fill("danube_wrong_key")
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("alert").wait_for()
        await page.get_by_label("API key or token").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("link", name=TOPIC).wait_for()
        assert await page.get_by_text("secret").count() == 0
        await page.goto(f"{console}/topic?name={TOPIC}")
        delete = page.get_by_role("button", name="Delete topic")
        await delete.wait_for()
        assert await delete.is_disabled()
        await find_inactive_buttons(page, console)
        await page.goto(f"{console}/topic?name=/default/secrets")
        await page.get_by_text("or you may not see it").wait_for()
        assert await page.get_by_role("link", name="secret").count() == 0
        [cookie] = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert key not in str(await page.context.cookies())
        await page.get_by_role("button", name="Account").click()
        await page.get_by_text("Sign out").click()
        await page.get_by_label("API key or token").wait_for()
        await page.goto(f"{console}/topics")
        # The form of the key is right, so the broker is asked.
        wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
        while not await page.get_by_text("Too many attempts").count():
            await page.get_by_label("API key or token").fill(wrong)
            async with page.expect_navigation():
                await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("alert").wait_for()


async def find_inactive_buttons(page, console):
    """Look for buttons that the user has no permission for, on several pages."""
    await page.goto(f"{console}/namespaces")
    await page.get_by_label("Name", exact=True).fill("mine")
    refused = "You need the permission create on /mine."
    await page.locator(f'button[title="{refused}"]').wait_for()
    await page.goto(f"{console}/schemas")
    await page.get_by_role("button", name="New version").click()
    await page.get_by_label("Subject").fill("orders")
    refused = "You need the permission schema_write on subject:orders."
    await page.locator(f'button[title="{refused}"]').wait_for()
    await page.goto(f"{console}/security")
    for name in ("Create key", "Revoke key", "Add binding", "Remove"):
        button = page.get_by_role("button", name=name)
        await button.and_(page.locator("button[disabled]")).wait_for()


async def test_console_without_messages_shows_none(browser, broker):
    options = ("--url", broker.url, "--payloads", "mask")
    with running_console(*options) as console:
        await find_no_content(browser, console)


async def find_no_content(browser, console):
    async with opened_page(browser) as page:
        await page.goto(f"{console}/messages?topic={TOPIC}")
        await page.get_by_text("bytes, not shown").first.wait_for()
        assert await page.get_by_text("onerror").count() == 0


def test_other_machines_are_served_only_on_request():
    process = start_danube("console", "--port", "0", "--host", "0.0.0.0")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert b"--behind-https" in errors
