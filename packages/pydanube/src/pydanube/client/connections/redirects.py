"""Redirects of ``connect`` to brokers inside of this process, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydanube.client.connections.connection import Dial
from pydanube.model.lazy_dataclasses import dataclass

Address = tuple[str, int]
"""The host and the port in a broker's URL."""


@dataclass(frozen=True, slots=True, eq=False)
class Redirect:
    """A replacement for the broker at an address, for clients that connect."""

    address: Address | None
    """The address that is redirected; None: all."""
    dial: Dial
    wall_clock_ns: Callable[[], int]
    """The clock of the client's publish times and delivery windows."""


# The newest is last.  Replaced as a whole, because clients connect in any thread.
_redirects: tuple[Redirect, ...] = ()


@contextmanager
def redirecting(redirect: Redirect) -> Iterator[None]:
    """Let clients that connect while the body runs follow *redirect*."""
    global _redirects  # noqa: PLW0603  # The code under test has no argument for it.
    _redirects = (*_redirects, redirect)
    try:
        yield
    finally:
        _redirects = tuple(each for each in _redirects if each is not redirect)


def find_redirect(address: Address) -> Redirect | None:
    """Return the newest redirect of *address*, or None."""
    for each in reversed(_redirects):
        if each.address in (None, address):
            return each
    return None
