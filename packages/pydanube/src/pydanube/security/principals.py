"""The identities of clients."""

from __future__ import annotations

from typing import Literal

from pydanube.model.lazy_dataclasses import dataclass

Method = Literal["anonymous", "certificate", "api_key", "token"]
"""How a client has proved its identity."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client, as the broker has verified it."""

    name: str
    method: Method
    groups: tuple[str, ...] = ()
    expires_at_s: float | None = None
    """The Unix time from which the identity is no longer valid; None: it does not
    expire."""


ANONYMOUS = Principal("anonymous", "anonymous")
"""A client without credentials, to a broker that needs none."""
