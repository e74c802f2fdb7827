"""The console shows connectors that run, and changes them as users may."""

import json

import pytest

pytest.importorskip("nicegui")

import pydanube
from support.drivers.connectors import ConnectProcess
from support.servers.browsers import opened_page, running_browser
from support.servers.consoles import EVIL, check_page, running_console, take_picture
from support.servers.http_server import Answer, LocalServer
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated("console")]

FILE = """
connectors:
  numbers: {kind: generator-source, topic: /default/numbers, options: {rate: 500}}
  few: {kind: generator-source, topic: /default/few, options: {count: 3}}
"""
TOKEN = "a-token-of-32-characters-in-file"


def status(name, topic, **facts):
    return {"connector": name, "kind": "kafka-source", "topic": topic} | facts


def endpoint(*statuses):
    """An endpoint of connectors, as that of another machine."""

    def answer(request):
        if request.method == "GET":
            return Answer(200, json.dumps(statuses).encode())
        name = request.path.split("/")[2]
        found = next(each for each in statuses if each["connector"] == name)
        return Answer(200, json.dumps(found).encode())

    return LocalServer(answer)


async def test_connectors_are_paused_resumed_and_restarted(tmp_path):
    file = tmp_path / "connectors.yaml"
    file.write_text(FILE)
    evil = status("evil", "/default/evil", state="failed", error=EVIL, retries=7)
    silent = f"http://127.0.0.1:{free_port()}"
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url),
        endpoint(evil) as other,
        running_console(
            *("--url", broker.url, "--connectors", "local"),
            *("--connectors", silent, "--connectors", other.url),
            DANUBE_STATE=str(tmp_path / "state"),
        ) as console,
    ):
        async with running_browser() as browser:
            async with opened_page(browser) as page:
                await operate(page, console, silent)
            async with opened_page(browser, width=390, scheme="dark") as page:
                await page.goto(f"{console}/connectors?name=evil")
                await page.get_by_role("heading", name="evil since").wait_for()
                await check_page(page, "/connectors")
                await take_picture(page, "connectors-390-dark", is_full=True)


async def operate(page, console, silent):
    await page.goto(f"{console}/")
    await page.get_by_role("link", name="connector evil has failed").wait_for()
    await page.get_by_role("link", name=f"at {silent} do not answer").wait_for()
    await page.keyboard.press("/")
    await page.get_by_label("Search topics").fill("numbers")
    await page.get_by_role("link", name="connector of /default/numbers").wait_for()
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="numbers since").wait_for()
    state = page.get_by_role("row", name="numbers").locator(".badge")
    await state.get_by_text("running").wait_for()
    await page.get_by_role("row", name="few").get_by_text("finished").wait_for()
    # The endpoint that does not answer is shown, and the others are not concerned.
    await page.get_by_role("row", name=silent).get_by_text("unreachable").wait_for()
    await page.get_by_role("row", name="evil").get_by_text("onerror").wait_for()
    await check_page(page, "/connectors")
    await take_picture(page, "connectors-1280-light", is_full=True)
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_text("numbers will pause").wait_for()
    await state.get_by_text("paused").wait_for()
    await page.get_by_role("button", name="Resume").click()
    await state.get_by_text("running").wait_for()
    await page.get_by_label("Connector", exact=True).click()
    await page.get_by_role("option", name="few").click()
    await page.get_by_role("heading", name="few since").wait_for()
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_text("few has finished").wait_for()
    await page.get_by_role("button", name="Restart").click()
    await page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    await page.get_by_text("few starts again").wait_for()
    # The console has no token of the last one.
    await page.get_by_label("Connector", exact=True).click()
    await page.get_by_role("option", name="evil").click()
    await page.get_by_text("it can only look").wait_for()
    assert await page.get_by_role("button", name="Pause").is_disabled()
    assert page.problems == []


@pytest.mark.soak
async def test_users_see_and_change_the_connectors_of_their_topics(tmp_path):
    settings = tmp_path / "broker.yaml"
    key_file, token_file = tmp_path / "bootstrap.key", tmp_path / "token"
    token_file.write_text(TOKEN)
    settings.write_text(
        f"security: {{enabled: true, bootstrap_key_file: {key_file}}}\n"
    )
    own, seen, secret = (f"/default/{name}" for name in ("own", "seen", "secret"))
    statuses = [
        status("mine", own, state="running", error="the first error"),
        status("theirs", seen, state="running"),
        status("hidden", secret, state="running"),
    ]
    with (
        BrokerProcess(tmp_path / "data", "--config", str(settings)) as broker,
        endpoint(*statuses) as other,
        running_console(
            *("--url", broker.url),
            *("--connectors", f"{other.url}?token_file={token_file}"),
            logs="ada: pause the connector mine",
        ) as console,
    ):
        admin_key = key_file.read_text().strip()
        async with pydanube.connect(broker.url, api_key=admin_key) as admin:
            await admin.security.add_binding("user:ada", ["admin"], [own])
            await admin.security.add_binding("user:ada", ["viewer"], [seen])
            key = (await admin.security.create_api_key("ada")).key
        async with running_browser() as browser, opened_page(browser) as page:
            await page.goto(f"{console}/connectors?name=theirs")
            await page.get_by_label("API key or token").fill(key)
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("heading", name="theirs since").wait_for()
            await page.get_by_role("row", name="mine").wait_for()
            assert await page.get_by_text("hidden").count() == 0
            await page.get_by_role("button", name="Pause").click()
            await page.get_by_text("needs the permission manage on").wait_for()
            assert all(each.method == "GET" for each in other.requests)
            await page.goto(f"{console}/connectors?name=mine")
            await page.get_by_role("button", name="Pause").click()
            await page.get_by_text("mine will pause").wait_for()
            [request] = [each for each in other.requests if each.method == "POST"]
            assert request.path == "/connectors/mine/pause"
            assert request.headers["authorization"] == f"Bearer {TOKEN}"
            assert TOKEN not in await page.content()


@pytest.mark.soak
async def test_stored_connectors_are_created_changed_paused_and_deleted(tmp_path):
    worker = tmp_path / "w"
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(worker, broker.url, "work"),
        running_console(
            *("--url", broker.url), DANUBE_STATE=str(tmp_path / "state")
        ) as console,
    ):
        async with running_browser() as browser:
            async with opened_page(browser) as page:
                await store(page, console)
            async with pydanube.connect(broker.url) as client:
                # They have no worker yet, and lines that are long.
                for number in range(30):
                    topic = f"/default/{number}-{'x' * 60}"
                    text = {"kind": "http-sink", "topic": topic, "options": {}}
                    name = f"connector-with-a-long-name-{number}"
                    await client.connectors.set(name, topic, json.dumps(text))
            async with opened_page(browser, width=390, scheme="dark") as page:
                await page.goto(f"{console}/connectors?name=numbers")
                await page.get_by_role("heading", name="numbers in the").wait_for()
                await check_page(page, "/connectors")
                await take_picture(page, "stored-connectors-390-dark", is_full=True)
            async with opened_page(browser) as page:
                await delete(page, console)


async def store(page, console):
    await page.goto(f"{console}/connectors")
    await page.get_by_text("The broker stores no connector").wait_for()
    await page.get_by_role("button", name="New connector").click()
    dialog = page.get_by_role("dialog")
    text = dialog.get_by_label("Definition")
    await text.fill("connectors: {n: {kind: 'evil.py:X', topic: /default/a}}")
    await dialog.get_by_role("button", name="Check").click()
    await page.get_by_text("names a file of yours").wait_for()
    assert await dialog.get_by_role("button", name="Store").is_disabled()
    await text.fill(
        "connectors: {numbers: {kind: generator-source, topic: /default/numbers, "
        "options: {rate: 100}}}"
    )
    await dialog.get_by_role("button", name="Check").click()
    await dialog.get_by_text("created").wait_for()
    await take_picture(page, "stored-connector-form-1280-light", is_full=True)
    await dialog.get_by_role("button", name="Store").click()
    await page.get_by_role("heading", name="numbers in the broker").wait_for()
    row = page.get_by_role("row", name="numbers")
    await row.get_by_text("healthy").wait_for()
    await row.get_by_text("w", exact=True).wait_for()
    await check_page(page, "/connectors")
    await take_picture(page, "stored-connectors-1280-light", is_full=True)
    await page.get_by_role("button", name="Change", exact=True).click()
    text = page.get_by_role("dialog").get_by_label("Definition")
    await text.fill((await text.input_value()).replace("rate: 100", "rate: 200"))
    await page.get_by_role("dialog").get_by_role("button", name="Check").click()
    await page.get_by_text("options.rate: 100 → 200").wait_for()
    await page.get_by_role("dialog").get_by_role("button", name="Store").click()
    await page.get_by_text("rate: 200").first.wait_for()
    await page.get_by_role("button", name="Pause it").click()
    await row.get_by_text("paused").wait_for()
    await page.get_by_role("button", name="Resume it").click()
    await row.get_by_text("healthy").wait_for()
    assert page.problems == []


async def delete(page, console):
    await page.goto(f"{console}/connectors?name=numbers")
    await page.get_by_role("heading", name="numbers in the broker").wait_for()
    await page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Type numbers to confirm").fill("numbers")
    await dialog.get_by_role("button", name="Delete it").click()
    await page.get_by_text("numbers is deleted").wait_for()
    assert page.problems == []
