"""
Object stores that requests may name.

A request has the name of a store, never its URL or its options.  Otherwise a client
could have the broker read files of its machine, through options such as
``password_file``, or send its own credentials to a server of the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.extras import MissingExtra
from pydanube.model.suggestions import did_you_mean
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube_broker.storage.config import NamedStoreConfig


class NamedStores:
    """The object stores in the settings of the broker, by name."""

    def __init__(
        self, stores: Mapping[str, NamedStoreConfig], broker_id: str = ""
    ) -> None:
        self._stores = stores
        # Brokers of a cluster may have other settings.
        self._broker = f"the broker {broker_id}" if broker_id else "the broker"

    def url_of(self, name: str) -> str:
        """
        Return the URL of the store *name*.

        Raises:
            InvalidRequest: The settings have no such store.
        """
        return self._find(name).url

    async def open(self, name: str) -> Objects:
        """
        Open the store *name*, with its options in the settings.

        Raises:
            InvalidRequest: The settings have no such store.
            InvalidConfig: An option is invalid, the extra ``objects`` is not installed,
                or a directory cannot be created.
        """
        store = self._find(name)
        try:
            return await asyncio.to_thread(open_objects, store.url, store.options)
        except (MissingExtra, OSError) as error:
            raise InvalidConfig(
                f"the broker cannot open the object store {name!r}: {error}"
            ) from error

    def _find(self, name: str) -> NamedStoreConfig:
        found = self._stores.get(name)
        if found is None:
            named = ", ".join(sorted(self._stores)) or "no store"
            raise InvalidRequest(
                f"{name!r} is not the name of a store in the settings of {self._broker}"
                f"{did_you_mean(name, self._stores)}; they name {named}: set the URL "
                "in stores.NAME.url and start the broker again"
            )
        return found
