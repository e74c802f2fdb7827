"""The public keys of the issuer of tokens, from a file or an address."""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydanube.aio.file_reloading import FromFiles
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, InvalidConfig, Unavailable
from pydanube.security.tokens import KEYS_BYTES_MAX, IssuerKeys, parse_keys
from pydanube_broker.servers.settings.security_config import JwtConfig

log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 10.0


class IssuerKeySource:
    """
    The public keys of an issuer, which may change; opened by ``open_issuer_keys``.

    Bounds: It has the keys of one document of at most ``KEYS_BYTES_MAX``, and fetches
        one document at a time, at most every ``keys_refresh_min_s``.
    """

    def __init__(self, config: JwtConfig, *, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._keys: IssuerKeys | None = None
        self._file: FromFiles[IssuerKeys] | None = None
        self.generation = 0
        """The number of changes of the keys."""
        self._fetched_at: float | None = None
        self._is_needed = asyncio.Event()
        self._is_fetching = False
        if config.keys_file:
            path = Path(config.keys_file)
            self._file = FromFiles(
                lambda: _read(path), [config.keys_file], "keys of the issuer of tokens"
            )

    def get(self) -> IssuerKeys:
        """
        Return the keys.

        Raises:
            Unavailable: They could not be fetched yet.
        """
        if self._file is not None:
            self._set(self._file.get())
        if self._keys is None:
            self.refresh_soon()
            raise Unavailable(
                "the broker has not fetched the keys of the issuer of tokens yet "
                "(security.jwt.keys_url): try again"
            )
        return self._keys

    def refresh_soon(self) -> bool:
        """
        Fetch the keys, unless that was done a short time ago.

        Returns: Whether they are fetched now.
        """
        if self._is_fetching:
            return True
        if self._file is not None or not self._may_fetch:
            return False
        self._is_needed.set()
        return True

    async def fetch_regularly(self) -> None:
        """Fetch the keys now, regularly, and when they are needed."""
        while True:
            self._is_needed.clear()
            self._fetched_at = self._clock()
            self._is_fetching = True
            try:
                text = await asyncio.to_thread(_fetch, self._config.keys_url)
                self._set(parse_keys(text))
            except (OSError, ValueError, BrokerError) as error:
                log.warning(
                    "cannot fetch the keys of the issuer of tokens at %s: %s",
                    self._config.keys_url,
                    error,
                )
            finally:
                self._is_fetching = False
            await self._until_due()

    async def _until_due(self) -> None:
        is_missing = self._keys is None
        wait_s = (
            self._config.keys_refresh_min_s
            if is_missing
            else self._config.keys_refresh_s
        )
        try:
            async with asyncio.timeout(wait_s):
                await self._is_needed.wait()
        except TimeoutError:
            pass

    @property
    def _may_fetch(self) -> bool:
        at = self._fetched_at
        return at is None or self._clock() - at >= self._config.keys_refresh_min_s

    def _set(self, keys: IssuerKeys) -> None:
        if keys is not self._keys:
            self._keys = keys
            self.generation += 1


@asynccontextmanager
async def open_issuer_keys(
    config: JwtConfig, *, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[IssuerKeySource | None]:
    """
    Keep the keys of the issuer up to date during the body; None: no tokens.

    Raises:
        InvalidConfig: The file with the keys cannot be used.
    """
    if not config.issuer:
        yield None
        return
    source = IssuerKeySource(config, clock=clock)
    async with task_scope() as tasks:
        if config.keys_url:
            tasks.run(source.fetch_regularly(), "keys of the issuer of tokens")
        yield source


def _read(path: Path) -> IssuerKeys:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(
            f"security.jwt.keys_file: the file {path} cannot be read: {error}"
        ) from error
    try:
        return parse_keys(text)
    except InvalidConfig as error:
        raise InvalidConfig(f"security.jwt.keys_file: {path}: {error}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that names another address is an error: only this one is trusted."""

    def redirect_request(self, *_: Any) -> None:
        """Return no further request."""
        return


def _fetch(url: str) -> str:
    """Return the document at *url*, which the settings have checked."""
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(url, timeout=FETCH_TIMEOUT_S) as answer:
            data: bytes = answer.read(KEYS_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    if len(data) > KEYS_BYTES_MAX:
        raise ValueError(f"the document has more than {KEYS_BYTES_MAX} bytes")
    return data.decode()
