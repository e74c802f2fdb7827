"""
The scopes that ``connect``, ``producer`` and ``consumer`` return, for ``with``.

A scope explains how to enter it if it is used in any other way, and warns if it was
never entered.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Scope:
    """The common part of synchronous and asynchronous scopes."""

    _STATEMENT = "with"

    def __init__(self, call: str, name: str) -> None:
        self._call = call
        self._name = name
        self._is_entered = False
        # Whether it was entered, or a mistake has been reported already.
        self._was_used = False

    @property
    def _how(self) -> str:
        return f"write `{self._STATEMENT} {self._call} as {self._name}:`"

    def _enter_once(self) -> None:
        self._was_used = True
        if self._is_entered:
            raise RuntimeError(
                f"{self._call} was entered before: call it again for another "
                f"{self._name}"
            )
        self._is_entered = True

    def __getattr__(self, name: str) -> NoReturn:
        # Protocols of Python ask for names with underscores, and need no explanation.
        if name.startswith("_"):
            raise AttributeError(name)
        self._was_used = True
        raise AttributeError(
            f"{self._call} is not open yet, so it has no {name!r}: {self._how}"
        )

    def __del__(self) -> None:
        if not self._was_used:
            warnings.warn(
                f"{self._call} was never entered: {self._how}",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        return f"<{self._call}, to be entered by `{self._STATEMENT}`>"


class AsyncScope(Scope, AbstractAsyncContextManager[T]):
    """Something that ``async with`` opens and closes."""

    _STATEMENT = "async with"

    def __init__(
        self, opening: AbstractAsyncContextManager[T], call: str, name: str
    ) -> None:
        super().__init__(call, name)
        self._opening = opening

    def for_threads(self, opening: AbstractContextManager[S]) -> SyncScope[S]:
        """Return a scope that *opening* enters in this one's place."""
        # Only the new one warns.
        self._was_used = True
        call = self._call.replace("pydanube.connect", "pydanube.sync.connect")
        return SyncScope(opening, call, self._name)

    async def __aenter__(self) -> T:
        self._enter_once()
        return await self._opening.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._opening.__aexit__(kind, error, traceback)

    # Mistakes of users.

    def __await__(self) -> NoReturn:
        self._refuse("await")

    def __aiter__(self) -> NoReturn:
        self._refuse("async for")

    def __iter__(self) -> NoReturn:
        self._refuse("for")

    def __enter__(self) -> NoReturn:
        self._refuse("with")

    def __exit__(self, *_: object) -> None:
        """Exist so that ``with`` calls ``__enter__``."""

    def _refuse(self, statement: str) -> NoReturn:
        self._was_used = True
        raise TypeError(f"`{statement}` cannot open {self._call}: {self._how}")


class SyncScope(Scope, AbstractContextManager[T]):
    """Something that ``with`` opens and closes."""

    def __init__(
        self, opening: AbstractContextManager[T], call: str, name: str
    ) -> None:
        super().__init__(call, name)
        self._opening = opening

    def __enter__(self) -> T:
        self._enter_once()
        return self._opening.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._opening.__exit__(kind, error, traceback)

    def __iter__(self) -> NoReturn:
        self._refuse("for", "it is not open yet")

    async def __aenter__(self) -> NoReturn:
        self._refuse("async with", "it is of pydanube.sync")

    async def __aexit__(self, *_: object) -> None:
        """Exist so that ``async with`` calls ``__aenter__``."""

    def _refuse(self, statement: str, reason: str) -> NoReturn:
        self._was_used = True
        raise TypeError(f"`{statement}` cannot use {self._call}, {reason}: {self._how}")


def call_of(name: str, topic: Any) -> str:
    """Return a call as users write it, for messages."""
    return f"client.{name}({topic!r})"
