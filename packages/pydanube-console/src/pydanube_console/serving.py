"""The server of the console: its routes, the login, and the pages of NiceGUI."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from html import escape
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from pydanube.aio.http_server import forwarding_of, listener_at, serving
from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
)
from pydanube.security.failed_attempts import FailedAttempts
from pydanube_cli.administration.definitions.exporting import export_definitions
from pydanube_cli.administration.definitions.pure.document import encode_definitions
from pydanube_console.guard import Guard, mark_scripts
from pydanube_console.message_download import DOWNLOADS_MAX
from pydanube_console.oidc import PENDING_S, OidcLogin
from pydanube_console.pure.markup import Html, address, element
from pydanube_console.sessions import Session, Sessions, open_sessions
from pydanube_console.settings import ConsoleSettings, Payloads

COOKIE = "danube-console"
OIDC_COOKIE = "danube-console-login"
OIDC_PATH = "/login/oidc"
OIDC_CALLBACK = "/login/callback"
CREDENTIAL_CHARACTERS_MAX = 16 * 1024
ATTEMPTS_MAX = 5
"""The failed attempts of an address to sign in, at once."""
ATTEMPTS_PER_S = 0.2
"""How many of them are forgotten per second."""
STYLE = Path(__file__).with_name("style.css")

NO_SECURITY = (
    "The broker has no security, so everybody who reaches this console could do "
    "everything: enable security at the broker, or start the console with --insecure."
)

PAGES: dict[str, str] = {
    "/": "overview",
    "/topics": "topics",
    "/topic": "topic",
    "/messages": "messages",
    "/dead-letters": "dead_letters",
    "/schemas": "schemas",
    "/schema": "schema",
    "/connectors": "connectors",
    "/pipelines": "pipelines",
    "/pipeline": "pipeline",
    "/namespaces": "namespaces",
    "/cluster": "cluster",
    "/connections": "connections",
    "/definitions": "definitions",
    "/security": "security",
    "/audit": "audit",
}
"""The module of each page, by its address."""
WITH_MESSAGES = {"/messages", "/dead-letters", "/audit"}


@asynccontextmanager
async def open_console(settings: ConsoleSettings) -> AsyncIterator[int]:
    """
    Serve the console during the body; yields its port.

    Raises:
        InvalidConfig: The address cannot be used.
    """
    try:
        listener = listener_at(settings.host, settings.port)
    except OSError as error:
        raise InvalidConfig(
            f"the console cannot listen on {settings.host}:{settings.port}: "
            f"{error.strerror or error}; choose another port with --port"
        ) from error
    port: int = listener.getsockname()[1]
    async with open_sessions(
        settings.url, settings.find_connectors, settings.find_pipelines
    ) as sessions:
        guarded = Guard(
            make_app(settings, sessions),
            (settings.host, *settings.allowed_hosts),
            is_https=settings.is_behind_https,
        )
        config = uvicorn.Config(
            GZipMiddleware(guarded),
            loop="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            ws_max_size=4 * 1024 * 1024,
            **forwarding_of(settings.trusted_proxies),
        )
        async with serving(config, listener):
            yield port


def make_app(settings: ConsoleSettings, sessions: Sessions) -> FastAPI:
    """Return the application of a console."""
    # NiceGUI writes what it keeps for users to this directory; we keep nothing there.
    os.environ.setdefault("NICEGUI_STORAGE_PATH", tempfile.gettempdir())
    from nicegui import client, ui  # noqa: PLC0415  # Slow, and reads variables.

    mark_scripts(client.templates.env)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    login = Login(settings, sessions)
    app.get("/console.css")(_style)
    app.get("/login")(login.form)
    app.post("/login")(login.submit)
    app.post("/logout")(login.leave)
    if settings.oidc is not None:
        provider = ProviderLogin(login, OidcLogin(settings.oidc), settings)
        app.get(OIDC_PATH)(provider.begin)
        app.get(OIDC_CALLBACK)(provider.finish)
    app.get("/healthz")(_healthz)
    downloads = Downloads(settings, login)
    app.get("/messages/download")(downloads.begin)
    app.get("/definitions/download")(downloads.definitions)
    for path, name in PAGES.items():
        module = import_module(f"pydanube_console.pages.{name}")
        ui.page(path)(_page(module.show, path, settings, login))
    ui.run_with(
        app,
        title="Danube",
        dark=None,
        tailwind=False,
        show_welcome_message=False,
        # The guard changes pages before they are compressed.
        gzip_middleware_factory=None,
    )
    return app


def _page(
    show: Callable[..., Awaitable[None]],
    path: str,
    settings: ConsoleSettings,
    login: Login,
) -> Callable[[Request], Awaitable[Response | None]]:
    """Return the page *show* for users who have signed in."""

    async def page(request: Request) -> Response | None:
        session = login.session_of(request)
        if session is None:
            return await login.begin(request)
        if path in WITH_MESSAGES and settings.payloads is Payloads.HIDE:
            return _document("This console shows no messages.", status=403)
        options: dict[str, Any] = dict(request.query_params)
        options["payloads"] = settings.payloads
        await show(session, **_known(show, options))
        return None

    return page


def _known(show: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a page has; addresses may have others."""
    names = list(signature(show).parameters)
    return {name: value for name, value in options.items() if name in names[1:]}


class Login:
    """Signs users in and out."""

    def __init__(
        self,
        settings: ConsoleSettings,
        sessions: Sessions,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._clock = clock
        # The broker limits failures by the console's address, which all users share:
        # one of them alone must not reach that limit.
        self._failures = FailedAttempts(
            attempts_max=ATTEMPTS_MAX, attempts_per_s=ATTEMPTS_PER_S
        )

    def session_of(self, request: Request) -> Session | None:
        """Return the session of the browser; None: it has none."""
        return self._sessions.find(request.cookies.get(COOKIE, ""))

    async def begin(self, request: Request) -> Response:
        """Begin a session without credentials, or ask for some."""
        here = request.url.path
        if request.url.query:
            here += f"?{request.url.query}"
        if not self._settings.allows_anonymous:
            return RedirectResponse(f"/login?next={quote(here)}", 303)
        try:
            session = await self._sessions.open()
        except Unauthenticated:
            return RedirectResponse(f"/login?next={quote(here)}", 303)
        except BrokerError as error:
            return _document(f"No broker answers: {error}", status=503)
        return self._with_cookie(RedirectResponse(here, 303), session)

    async def form(self, request: Request) -> Response:
        """Show the form for credentials."""
        return self.page(_next_of(request.query_params.get("next", "/")))

    def page(self, target: str, error: str = "", *, status: int = 200) -> Response:
        """Return the form for credentials."""
        oidc = self._settings.oidc
        issuer = "" if oidc is None else urlsplit(oidc.issuer).netloc
        return _login_page(target, error, status=status, issuer=issuer)

    async def submit(self, request: Request) -> Response:
        """Begin a session with the credentials of the form."""
        form = await request.form()
        credential = str(form.get("credential", "")).strip()
        target = _next_of(str(form.get("next", "/")))
        if not 0 < len(credential) <= CREDENTIAL_CHARACTERS_MAX:
            return self.page(target, "Enter an API key or a token.", status=400)
        address = request.client.host if request.client is not None else ""
        now = self._clock()
        if (wait_s := self._failures.wait_s(address, now)) > 0:
            text = f"Too many attempts have failed: try again in {wait_s:.0f} s."
            return self.page(target, text, status=429)
        answer = RedirectResponse(target, 303)
        try:
            return await self.enter(request, credential, answer)
        except QuotaExceeded as error:
            return self.page(target, str(error), status=429)
        except BrokerError as error:
            if isinstance(error, Unauthenticated):
                self._failures.add(address, now)
            return self.page(target, str(error), status=403)

    async def enter(
        self, request: Request, credential: str, answer: Response
    ) -> Response:
        """
        Begin a session with *credential*, and return *answer* with its cookie.

        Raises: As ``Sessions.open``.
        """
        session = await self._sessions.open(credential)
        if not session.identity.is_enforced and not self._settings.allows_anonymous:
            self._sessions.close(session)
            raise PermissionDenied(NO_SECURITY)
        if (old := self.session_of(request)) is not None:
            self._sessions.close(old)
        return self._with_cookie(answer, session)

    async def leave(self, request: Request) -> Response:
        """End the session."""
        if (session := self.session_of(request)) is not None:
            self._sessions.close(session)
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE)
        return answer

    def _with_cookie(self, answer: Response, session: Session) -> Response:
        answer.set_cookie(
            COOKIE,
            session.key,
            httponly=True,
            samesite="strict",
            secure=self._settings.is_behind_https,
        )
        return answer


class ProviderLogin:
    """Signs users in who prove their identity to an issuer of tokens."""

    def __init__(
        self, login: Login, oidc: OidcLogin, settings: ConsoleSettings
    ) -> None:
        self._login = login
        self._oidc = oidc
        self._is_https = settings.is_behind_https

    async def begin(self, request: Request) -> Response:
        """Send the browser to the issuer."""
        target = _next_of(request.query_params.get("next", "/"))
        # The guard has checked the host.
        scheme = "https" if self._is_https else "http"
        uri = f"{scheme}://{request.headers.get('host', '')}{OIDC_CALLBACK}"
        try:
            key, url = await self._oidc.begin(uri, target)
        except BrokerError as error:
            return self._login.page(target, str(error), status=503)
        answer = RedirectResponse(url, 303)
        answer.set_cookie(
            OIDC_COOKIE,
            key,
            max_age=int(PENDING_S),
            path="/login",
            httponly=True,
            # Browsers send it when the issuer sends them back.
            samesite="lax",
            secure=self._is_https,
        )
        return answer

    async def finish(self, request: Request) -> Response:
        """Begin a session with the token that the issuer gives for the code."""
        key = request.cookies.get(OIDC_COOKIE, "")
        try:
            token, target = await self._oidc.finish(key, request.query_params)
            # Browsers send the session's cookie only with requests of our own pages, so
            # this page must lead on: after a redirect, the request were the issuer's.
            answer = await self._login.enter(request, token, _onward(target))
        except QuotaExceeded as error:
            answer = self._login.page("/", str(error), status=429)
        except BrokerError as error:
            answer = self._login.page("/", str(error), status=403)
        answer.delete_cookie(OIDC_COOKIE, path="/login")
        return answer


class Downloads:
    """The downloads of messages."""

    def __init__(self, settings: ConsoleSettings, login: Login) -> None:
        self._settings = settings
        self._login = login
        self._slots = asyncio.Semaphore(DOWNLOADS_MAX)

    async def begin(self, request: Request) -> Response:
        """Answer with the file that the address asks for."""
        # It imports NiceGUI, which make_app prepares.
        from pydanube_console.pages.messages import parse_download  # noqa: PLC0415

        session = self._login.session_of(request)
        if session is None:
            return _document("Sign in first.", status=401)
        if self._settings.payloads is not Payloads.SHOW:
            return _document("This console shows no payloads.", status=403)
        if self._slots.locked():
            text = f"{DOWNLOADS_MAX} downloads are running, the most allowed."
            return _document(text, status=429)
        try:
            download = parse_download(request.query_params)
            content = self._limited(download.content(session.client))
            # An error of the first messages is an answer, and no file.
            first = await anext(content)
        except BrokerError as error:
            return _document(str(error), status=400)

        async def parts() -> AsyncIterator[bytes]:
            async with aclosing(content):
                yield first
                async for part in content:
                    yield part

        return StreamingResponse(
            parts(),
            media_type=download.media_type,
            headers={
                "content-disposition": f'attachment; filename="{download.file_name}"',
                "cache-control": "no-store",
            },
        )

    async def definitions(self, request: Request) -> Response:
        """Answer with the definitions that the user may see."""
        session = self._login.session_of(request)
        if session is None:
            return _document("Sign in first.", status=401)
        async with self._slots:
            try:
                found = await export_definitions(session.client)
            except BrokerError as error:
                return _document(str(error), status=400)
        return Response(
            encode_definitions(found),
            media_type="application/json",
            headers={
                "content-disposition": 'attachment; filename="definitions.json"',
                "cache-control": "no-store",
            },
        )

    async def _limited(
        self, content: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        async with self._slots, aclosing(content):
            async for part in content:
                yield part


def _onward(target: str) -> Response:
    """Return a page that leads to *target* at once."""
    text = element("p", "You are signed in. ", element("a", "Continue", href=target))
    answer = _document(text, status=200)
    answer.headers["refresh"] = f"0; url={quote(target, safe='/?&=%')}"
    answer.headers["cache-control"] = "no-store"
    return answer


def _next_of(path: str) -> str:
    """Return *path* if it is one of this console, and else the first page."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_own and path.isprintable() else "/"


def _login_page(
    target: str, error: str = "", *, status: int = 200, issuer: str = ""
) -> Response:
    form = element(
        "form",
        Html(
            '<label for="credential">API key or token</label>'
            '<input id="credential" name="credential" type="password" required '
            'autofocus autocomplete="current-password">'
        ),
        Html(f'<input type="hidden" name="next" value="{escape(target)}">'),
        element("button", "Sign in", type="submit"),
        method="post",
        action="/login",
    )
    shown = element("p", error, class_="error", role="alert") if error else ""
    way = address(OIDC_PATH, next=target)
    link = element("a", f"Sign in with {issuer}", href=way, class_="sign-in")
    return _document(
        element("h1", "Danube"), shown, link if issuer else "", form, status=status
    )


def _document(*content: object, status: int) -> Response:
    """Return a page without NiceGUI."""
    main = element("main", element("div", *content, class_="panel"), class_="login")
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>Danube</title>'
        f'<link rel="stylesheet" href="/console.css"></head><body>{main}</body></html>',
        status_code=status,
    )


async def _style() -> Response:
    return FileResponse(STYLE, media_type="text/css")


async def _healthz() -> Response:
    return Response("ok")
