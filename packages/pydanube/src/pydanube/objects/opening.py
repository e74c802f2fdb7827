"""The object store that a URL names, and single objects as files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube.model.plugins import OBJECTS, load_plugin
from pydanube.objects.addresses import (
    StoreAddress,
    is_plugin_scheme,
    parse_object_url,
    parse_store_url,
    service_options,
)
from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.memory import MemoryObjects
from pydanube.objects.opendal_objects import (
    CONCURRENCY,
    READ_BYTES,
    RETRIES,
    TIMEOUT_S,
    OpendalObjects,
)
from pydanube.objects.store import Objects

_NO_OPTIONS: Mapping[str, str] = {}

_STORES_MAX = 16
"""The most stores that ``open_url`` keeps connections to."""


def open_objects(
    url: str,
    options: Mapping[str, str] = _NO_OPTIONS,
    *,
    timeout_s: float = TIMEOUT_S,
    retries: int = RETRIES,
    concurrency: int = CONCURRENCY,
    request_bytes_max: int = READ_BYTES,
) -> Objects:
    """
    Open the object store at *url*; this sends no request, and nothing must be closed.

    Args:
        url: ``s3://bucket/prefix``, ``gcs://…``, ``azblob://container/prefix``,
            ``redis://host:port/prefix``, ``fs:///directory``, ``memory://``, or another
            service of OpenDAL: ``webdav:///prefix``.  Other packages can add schemes.
        options: The options of the service.  An option whose name ends in ``_file``
            names a file with the value, which is read now.
        timeout_s: The most seconds that a request may take, or a part of an object.
        retries: How often a failed request is repeated.
        concurrency: The most requests at the same time.
        request_bytes_max: The most bytes that OpenDAL reads with one request.  More
            take less processor time, but it keeps the interpreter lock for longer.

    Raises:
        InvalidConfig: The URL, an option or a number is invalid.
        MissingExtra: OpenDAL is not installed.
    """
    address = parse_store_url(url)
    _check_limits(timeout_s=timeout_s, retries=retries, concurrency=concurrency)
    if address.is_local:
        _refuse_options(address, options)
        return DirectoryObjects(address.local_path, is_shared=True)
    if address.service == "memory":
        _refuse_options(address, options)
        return MemoryObjects()
    if is_plugin_scheme(address.scheme):
        return _open_plugin(
            url, options, timeout_s=timeout_s, retries=retries, concurrency=concurrency
        )
    return OpendalObjects(
        address,
        service_options(address, options),
        timeout_s=timeout_s,
        retries=retries,
        concurrency=concurrency,
        request_bytes_max=request_bytes_max,
    )


def open_url(
    url: str,
    options: Mapping[str, str] = _NO_OPTIONS,
    *,
    timeout_s: float = TIMEOUT_S,
    retries: int = RETRIES,
) -> Any:
    """
    Open the object at *url* as a file for random access; call this in a thread.

    It works in every process, with and without an event loop.  The process keeps its
    connections for the next object of the same store.

    Raises:
        FileNotFoundError: The object does not exist.
        OSError: It cannot be read; the methods of the file raise this, too.
        InvalidConfig: The URL or an option is invalid.
        MissingExtra: OpenDAL is not installed.
    """
    address = parse_object_url(url)
    if address.is_local:
        # Not mapped: a disk error would be a signal that ends the process.
        return pa.OSFile(str(address.local_path))
    if address.service == "memory":
        raise InvalidConfig(
            f"{url} is in the memory of another store; only that store can read it"
        )
    _check_limits(timeout_s=timeout_s, retries=retries, concurrency=CONCURRENCY)
    store = StoreAddress(address.scheme, address.authority, "")
    # The values of options in files are read each time, so that they may be replaced.
    if is_plugin_scheme(address.scheme):
        plain = tuple(sorted(options.items()))
        plugin = _plugin_store_of(os.getpid(), store.url, plain, timeout_s, retries)
        return plugin.open(address.path)
    given = tuple(sorted(service_options(store, options).items()))
    return _store_of(os.getpid(), store, given, timeout_s, retries).open(address.path)


@lru_cache(_STORES_MAX)
def _store_of(
    _process: int,
    address: StoreAddress,
    options: tuple[tuple[str, str], ...],
    timeout_s: float,
    retries: int,
) -> OpendalObjects:
    return OpendalObjects(address, dict(options), timeout_s=timeout_s, retries=retries)


@lru_cache(_STORES_MAX)
def _plugin_store_of(
    _process: int,
    url: str,
    options: tuple[tuple[str, str], ...],
    timeout_s: float,
    retries: int,
) -> Objects:
    return _open_plugin(
        url,
        dict(options),
        timeout_s=timeout_s,
        retries=retries,
        concurrency=CONCURRENCY,
    )


def _open_plugin(url: str, options: Mapping[str, str], **limits: Any) -> Objects:
    """Open a store of another package."""
    opener = load_plugin(OBJECTS, parse_store_url(url).scheme)
    opened: Objects = opener(url, options, **limits)
    return opened


def _check_limits(*, timeout_s: float, retries: int, concurrency: int) -> None:
    if not (isfinite(timeout_s) and timeout_s > 0):
        raise InvalidConfig(
            f"the timeout of the object store is {timeout_s} s; it must be positive"
        )
    if retries < 0:
        raise InvalidConfig(
            f"the object store has {retries} retries; there must be at least 0"
        )
    if concurrency < 1:
        raise InvalidConfig(
            f"the object store has a concurrency of {concurrency}; it must be at least "
            "1"
        )


def _refuse_options(address: StoreAddress, options: Mapping[str, str]) -> None:
    if options:
        raise InvalidConfig(
            f"the object store {address.url!r} has no options; remove "
            f"{', '.join(sorted(options))}"
        )
