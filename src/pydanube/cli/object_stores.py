"""Arguments that name an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pydanube.model.errors import InvalidRequest

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A directory on the machine of the broker, or the URL of an object store: "
        "s3://BUCKET/PREFIX, gcs://…, azblob://… or another one that OpenDAL knows.",
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


def url_of_store(store: str) -> str:
    """Return the URL of a store that is a URL, or a local directory."""
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
