"""`danube security keys`: creates, lists, rotates and revokes API keys."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.model.api_keys import ApiKeyDescription, NewApiKey
from pydanube.model.errors import InvalidRequest
from pydanube.model.json_values import to_json_value
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_time
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table, print_note
from pydanube_cli.presentation.quantities import optional, parse_duration

if TYPE_CHECKING:
    from pydanube.sync import Client

app = command_group(
    """
    Create, list, rotate and revoke API keys.

    These commands need credentials of a superuser: the key in the file that
    security.bootstrap_key_file names, or one of a principal in security.superusers.
    """,
    "danube security keys create billing",
    "danube security keys list",
    "danube security keys rotate billing --grace 1h",
    "danube security keys revoke billing",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the API key, for example billing.",
        show_default=False,
    ),
]


def _expiry_of(key: ApiKeyDescription) -> str:
    if key.expires_at is None:
        return "never"
    return format_time(to_datetime(key.expires_at))


COLUMNS: Columns = {
    "Name": "name",
    "Id": "key_id",
    "Principal": "principal",
    "Groups": lambda key: ", ".join(key.groups),
    "Created": lambda key: format_time(to_datetime(key.created_at)),
    "Expires": _expiry_of,
}


@command(
    app,
    "danube security keys create billing",
    "danube security keys create reports --principal reporting --expires 90d",
    "danube security keys create billing --output api-key.txt",
)
def create(
    connect: Connect,
    name: Name,
    *,
    principal: str | None = None,
    group: list[str] | None = None,
    expires: str | None = None,
    output: Path | None = None,
) -> Result:
    """
    Create an API key, and print it.

    The broker stores only a hash of the key, so it cannot be shown again.

    Args:
        principal (NAME): The principal that clients with the key are; by default the
            name of the key.
        group (--group NAME): A group of the principal; repeat it for several.
        expires (DURATION): After how long the key expires, such as 90d; by default
            never.
        output (FILE): Write the key to this new file, which only you may read, instead
            of printing it.
    """
    expires_at = _time_after(expires)

    def new_key(client: Client) -> NewApiKey:
        return client.security.create_api_key(
            name, principal=principal, groups=group or [], expires_at=expires_at
        )

    return _created(connect, new_key, output)


@command(app, "danube security keys list", name="list")
def list_(connect: Connect) -> Result:
    """List the valid API keys; the keys themselves are not stored."""
    with connect() as client:
        found = client.security.api_keys()
    return Result(found, Table.of(found, COLUMNS))


@command(
    app,
    "danube security keys rotate billing",
    "danube security keys rotate billing --grace 0 --expires 90d",
)
def rotate(
    connect: Connect,
    name: Name,
    *,
    grace: str = "1h",
    expires: str | None = None,
    output: Path | None = None,
) -> Result:
    """
    Create another key of a name, and print it; earlier ones expire soon.

    Args:
        grace (DURATION): For how long earlier keys of the name stay valid; 0 revokes
            them at once.
        expires (DURATION): After how long the new key expires, such as 90d; by default
            never.
        output (FILE): Write the key to this new file, which only you may read, instead
            of printing it.
    """
    grace_s, expires_at = parse_duration(grace), _time_after(expires)

    def new_key(client: Client) -> NewApiKey:
        return client.security.rotate_api_key(
            name, grace=timedelta(seconds=grace_s), expires_at=expires_at
        )

    return _created(connect, new_key, output)


@command(app, "danube security keys revoke billing --yes")
def revoke(connect: Connect, name: Name, *, yes: parameters.Yes = False) -> Result:
    """Revoke all keys of a name; the connections that use them are closed."""
    confirm(f"Revoke the API key {name}?", is_sure=yes)
    with connect() as client:
        client.security.revoke_api_key(name)
    return Result({"name": name, "revoked": True}, f"The API key {name} is revoked.")


@command(app, "danube security keys bootstrap bootstrap.key")
def bootstrap(file: Path) -> Result:
    """
    Create a bootstrap key in a new file, without a broker.

    A broker that finds no file at security.bootstrap_key_file creates it. Use this
    command if brokers cannot, for example because they get the file from a secret of
    Kubernetes, or if several brokers need the same key.

    Args:
        file (FILE): The new file, which only you may read.
    """
    from pydanube_broker.servers.connections.bootstrap_key import (  # noqa: PLC0415  # Needs the extra.
        create_bootstrap_key,
    )

    try:
        create_bootstrap_key(file)
    except OSError as error:
        raise InvalidRequest(
            f"the file {file} cannot be created: {error.strerror or error}"
        ) from error
    return Result(
        {"file": str(file)}, f"The key of the principal bootstrap is in {file}."
    )


def _time_after(duration: str | None) -> datetime | None:
    seconds = optional(parse_duration, duration)
    if seconds is None:
        return None
    now = datetime.fromtimestamp(time.time_ns() / 1_000_000_000, UTC)
    return now + timedelta(seconds=seconds)


def _created(
    connect: Connect, new_key: Callable[[Client], NewApiKey], output: Path | None
) -> Result:
    """Return the result of a command that creates a key."""
    if output is None:
        with connect() as client:
            created = new_key(client)
        print_note("Store the key now: it cannot be shown again.")
        described = to_json_value(created.description)
        fields = Fields.of(created.description, COLUMNS)
        return Result({**described, "key": created.key}, fields, created.key)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidRequest(
            f"--output: the file {output} cannot be created: {error.strerror or error}"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            with connect() as client:
                created = new_key(client)
            file.write(f"{created.key}\n")
    except BaseException:
        output.unlink()
        raise
    return Result(
        {**to_json_value(created.description), "file": str(output)},
        Fields.of(created.description, COLUMNS),
        f"The key is in {output}.",
    )
