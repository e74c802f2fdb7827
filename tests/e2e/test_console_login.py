"""Users sign in at an identity provider, and the broker verifies their token."""

import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

pytest.importorskip("nicegui")
pytest.importorskip("flask")

import pydanube
from support.servers.browsers import opened_page, running_browser
from support.servers.consoles import check_page, running_console, take_picture
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated("console")]

SETTINGS = """
security:
  enabled: true
  bootstrap_key_file: {directory}/bootstrap.key
  jwt: {{issuer: "{issuer}", audience: danube-console, keys_url: "{issuer}/jwks"}}
"""


@contextmanager
def running_provider():
    """Run an identity provider during the body; yield its address."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock"]
    process = subprocess.Popen(
        [*command, "--port", url.rpartition(":")[2]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client() as http:
            while True:
                assert process.poll() is None
                try:
                    http.get(url)
                    break
                except httpx.ConnectError:
                    continue
        yield url
    finally:
        process.terminate()
        process.wait()


async def test_users_sign_in_at_the_identity_provider(tmp_path):
    with running_provider() as issuer:
        settings, secret = tmp_path / "broker.yaml", tmp_path / "secret"
        # The provider accepts any.
        secret.write_text("hush")
        settings.write_text(SETTINGS.format(directory=tmp_path, issuer=issuer))
        with (
            BrokerProcess(tmp_path / "data", "--config", str(settings)) as broker,
            running_console(
                *("--url", broker.url),
                *("--oidc-issuer", issuer, "--oidc-token", "id"),
                *("--oidc-secret-file", str(secret)),
            ) as console,
        ):
            admin_key = (tmp_path / "bootstrap.key").read_text().strip()
            async with pydanube.connect(broker.url, api_key=admin_key) as admin:
                await admin.topics.create("/default/seen")
                await admin.topics.create("/default/secret")
                await admin.security.add_binding(
                    "user:ada", ["viewer"], ["/default/seen"]
                )
            async with running_browser() as browser, opened_page(browser) as page:
                await sign_in(page, console)


async def sign_in(page, console):
    await page.goto(f"{console}/topics")
    link = page.get_by_role("link", name="Sign in with 127.0.0.1")
    await link.wait_for()
    await check_page(page, "/login")
    await take_picture(page, "login-1280-light")
    # The provider refuses without repeating the state; the login can be repeated.
    await link.click()
    await page.get_by_role("button", name="Deny").click()
    await page.get_by_role("alert").get_by_text("this login has ended").wait_for()
    await page.goto(f"{console}/topics")
    await link.click()
    await page.get_by_placeholder("sub").fill("ada")
    await page.get_by_role("button", name="Authorize").click()
    await page.get_by_role("link", name="/default/seen").wait_for()
    assert page.url == f"{console}/topics"
    assert await page.get_by_text("secret").count() == 0
    await page.get_by_role("button", name="Account").click()
    await page.get_by_text("ada").wait_for()
    cookies = {each["name"]: each for each in await page.context.cookies(console)}
    assert cookies["danube-console"]["sameSite"] == "Strict"
    assert "danube-console-login" not in cookies
    # An answer that belongs to no login of this browser is refused.
    await page.goto(f"{console}/login/callback?code=c&state=s")
    await page.get_by_role("alert").get_by_text("this login has ended").wait_for()
