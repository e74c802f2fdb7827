"""Arguments that name an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pydanube.model.errors import InvalidRequest
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects

NamedStore = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of a store in the setting stores of the broker, which has its "
        "URL and its options.",
        show_default=False,
    ),
]

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A directory of this machine, the URL of an object store: "
        "s3://BUCKET/PREFIX, gcs://…, azblob://… or another one that OpenDAL knows, or "
        "with --config the name of a store in the setting stores.",
        show_default=False,
    ),
]

StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the store, for example region=eu-central-1; repeat it for "
        "more. Credentials come from the environment or from files.",
    ),
]

StoreSettings = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings of the broker, which name stores.",
        show_default=False,
    ),
]


def open_store(store: str, config: Path | None, options: list[str] | None) -> Objects:
    """
    Open the store that is a URL, a local directory, or named by the settings.

    Raises:
        InvalidRequest: An option is malformed.
        InvalidConfig: The settings or the store are invalid.
    """
    given = options_of(options)
    if config is not None:
        # Only brokers have settings.
        from pydanube_broker.servers.settings.config import load_config  # noqa: PLC0415

        named = load_config(config, os.environ, {}).stores.get(store)
        if named is not None:
            return open_objects(named.url, named.options | given)
    return open_objects(_url_of(store), given)


def _url_of(store: str) -> str:
    if "://" in store:
        return store
    return Path(store).absolute().as_uri().replace("file:", "fs:", 1)


def options_of(pairs: list[str] | None) -> dict[str, str]:
    """
    Return the options of a store by name.

    Raises:
        InvalidRequest: One is not of the form NAME=VALUE.
    """
    options = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidRequest(f"--option {pair} is not of the form NAME=VALUE")
        options[name] = value
    return options
