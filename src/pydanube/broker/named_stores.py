"""Object stores that clients name in requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.extras import MissingExtra
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects

OPTIONS_MAX = 100
"""The maximum number of options of an object store in a request."""


async def open_named_store(url: str, options: Mapping[str, str]) -> Objects:
    """
    Open the object store at *url*, with the broker's own credentials.

    Raises:
        InvalidRequest: There are too many options.
        InvalidConfig: *url* or an option is invalid, the extra ``objects`` is not
            installed, or a directory cannot be created.
    """
    if len(options) > OPTIONS_MAX:
        raise InvalidRequest(
            f"{len(options)} options are too many; at most {OPTIONS_MAX}"
        )
    try:
        return await asyncio.to_thread(open_objects, url, options)
    except (MissingExtra, OSError) as error:
        raise InvalidConfig(
            f"the broker cannot open the object store: {error}"
        ) from error
