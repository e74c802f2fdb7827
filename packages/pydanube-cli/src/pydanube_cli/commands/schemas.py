"""
`danube schemas`: registers, compares and deletes schemas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.client.messages.schema import Schema, schema_of
from pydanube.model.errors import IncompatibleSchema, InvalidRequest
from pydanube.model.json_values import to_json_value
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_time
from pydanube.model.schemas import Compatibility, SchemaType
from pydanube.model.shown_text import excerpt
from pydanube.schemas.compatibility import find_violations
from pydanube.schemas.differences import find_differences
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.json_layout import lay_out_json
from pydanube_cli.presentation.output import Columns, Result, Table

if TYPE_CHECKING:
    from pydanube.model.schemas import SchemaVersion
    from pydanube.schemas.compatibility import Violation
    from pydanube.sync import Client

SUFFIXES = {
    ".avsc": SchemaType.AVRO,
    ".json": SchemaType.JSON_SCHEMA,
    ".proto": SchemaType.PROTOBUF,
}
TYPES = "json_schema|avro|protobuf|string|number|bytes"
PAIRWISE = (Compatibility.BACKWARD, Compatibility.FORWARD, Compatibility.FULL)
FINGERPRINT_CHARACTERS = 19
"""Fingerprints are shortened to this: ``sha256:`` and twelve digits."""
TEXT_CHARACTERS_MAX = 60
"""Longer texts are shortened in tables."""

Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT", help="The subject, for example orders.", show_default=False
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="The file with the definition; types without a definition need none.",
        show_default=False,
    ),
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        "-t",
        metavar=TYPES,
        help="The schema language or type; by default that of the file name: .json is "
        "JSON Schema, .avsc Avro, .proto Protobuf.",
        show_default=False,
    ),
]
MessageName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Protobuf: the message of the file that payloads contain; by default the "
        "first.",
    ),
]


app = command_group(
    """
    Manage schemas.

    A subject is a name under which versions of a schema are registered; its
    compatibility mode decides which new versions are accepted. Messages carry the id
    of the version that they were written with.
    """,
    "danube schemas register orders -f order.avsc",
    "danube schemas check orders -f order.avsc",
    "danube schemas diff orders",
)


@command(
    app,
    "danube schemas register orders -f order.avsc",
    "danube schemas register orders -f shop.proto --message shop.Order",
    "danube schemas register greetings --type string",
)
def register(
    connect: Connect,
    subject: Subject,
    *,
    file: File = None,
    type: Type = None,  # noqa: A002  # The option's name.
    message: MessageName = None,
    description: str = "",
    tag: list[str] | None = None,
) -> Result:
    """
    Register a schema as the latest version of a subject.

    The subject is created if it does not exist. A schema that the subject already has
    is not registered again; an incompatible schema is refused.

    Args:
        description (TEXT): A description for people.
        tag (TEXT): A tag for people; may be repeated.
    """
    schema = _schema_from(file, type, message)
    with connect() as client:
        version, is_new = client.schemas.submit(
            subject, schema, description=description, tags=tag or ()
        )
    has = "has" if is_new else "already has this schema as"
    return Result(
        {"is_new": is_new, **_without_definition(version)},
        f"{subject} {has} version {version.version} (id {version.schema_id}).",
    )


@command(
    app,
    "danube schemas get orders",
    "danube schemas get orders --version 1 --format json",
)
def get(
    connect: Connect,
    subject: Subject,
    *,
    version: Annotated[int | None, typer.Option(min=1)] = None,
) -> Result:
    """
    Print the definition of a schema.

    A definition in JSON is indented; --format json has it exactly as it is stored.

    Args:
        version (-v NUMBER): The version; by default the latest.
    """
    with connect() as client:
        found = _get(client, subject, version)
    return Result(found, _readable(found.definition))


@command(app, "danube schemas list", name="list")
def list_(connect: Connect) -> Result:
    """List the subjects, with their types and versions."""
    with connect() as client:
        described = [
            client.schemas.describe(subject) for subject in client.schemas.subjects()
        ]
    return Result(described, Table.of(described, SUBJECT))


@command(app, "danube schemas versions orders")
def versions(connect: Connect, subject: Subject) -> Result:
    """List the versions of a subject."""
    with connect() as client:
        found = client.schemas.versions(subject)
    return Result([*map(_without_definition, found)], Table.of(found, VERSION))


@command(
    app,
    "danube schemas check orders -f order.avsc",
    "danube schemas check orders -f order.avsc --mode full_transitive",
)
def check(
    connect: Connect,
    subject: Subject,
    *,
    file: File = None,
    type: Type = None,  # noqa: A002
    message: MessageName = None,
    mode: str | None = None,
) -> Result:
    """
    Check whether a schema is compatible with a subject, without registering it.

    If it is not, the reasons are listed and the exit code is 4.

    Args:
        mode (none|backward|forward|full[_transitive]): The compatibility mode; by
            default that of the subject.
    """
    schema = _schema_from(file, type, message)
    rule = None if mode is None else Compatibility.parse(mode)
    with connect() as client:
        rule = rule or client.schemas.compatibility(subject)
        violations = client.schemas.check(subject, schema, mode=rule)
    answer = {
        "subject": subject,
        "mode": rule,
        "is_compatible": not violations,
        "violations": [*map(_json_of_violation, violations)],
    }
    if violations:
        return Result(
            answer,
            Table.of(violations, VIOLATION),
            exit_code=exit_code_of(IncompatibleSchema),
        )
    return Result(answer, f"The schema is compatible with {subject} ({rule.value}).")


@command(
    app,
    "danube schemas diff orders",
    "danube schemas diff orders 1 3",
    "danube schemas diff orders --file order.avsc",
)
def diff(
    connect: Connect,
    subject: Subject,
    old: Annotated[int | None, typer.Option(min=1)] = None,
    new: Annotated[int | None, typer.Option(min=1)] = None,
    *,
    file: Path | None = None,
    type: Type = None,  # noqa: A002
    message: MessageName = None,
) -> Result:
    """
    Show the differences between two versions, and in which directions they are
    compatible.

    Backward: the new version reads data written with the old one. Forward: the old
    version reads data written with the new one. Full: both.

    Args:
        old ([OLD]): The older version; by default the one before the newer version.
        new ([NEW]): The newer version; by default the latest.
        file (-f FILE): Compare with the definition in this file instead of a newer
            version.
    """
    if file is not None and new is not None:
        raise InvalidRequest("NEW and --file exclude each other")
    schema = None if file is None else _schema_from(file, type, message)
    after = None
    with connect() as client:
        known = client.schemas.describe(subject).versions
        if schema is not None:
            before = _get(client, subject, old)
        else:
            new = new or (known[-1] if known else 1)
            old = old or max((each for each in known if each < new), default=None)
            if old is None:
                raise InvalidRequest(f"{subject} has no version before {new}")
            before = client.schemas.get(subject, old)
            after = client.schemas.get(subject, new)
            schema = schema_of(after)
    one, other = schema_of(before).parse(), schema.parse()
    found = find_differences(one, other)
    modes = {
        mode: find_violations(mode, other, before.version, one) for mode in PAIRWISE
    }
    to = str(file) if after is None else f"version {after.version}"
    violations = modes[Compatibility.FULL]
    return Result(
        {
            "subject": subject,
            "old_version": before.version,
            "new_version": None if after is None else after.version,
            "differences": found,
            "modes": {
                mode.value: {
                    "holds": not reasons,
                    "violations": [*map(_json_of_violation, reasons)],
                }
                for mode, reasons in modes.items()
            },
        },
        f"{subject}: version {before.version} and {to}",
        "",
        Table.of(found, DIFFERENCE) if found else "There are no differences.",
        "",
        Table(
            ("Mode", "Compatible"),
            ((mode, not reasons) for mode, reasons in modes.items()),
        ),
        *(("", Table.of(violations, VIOLATION)) if violations else ()),
    )


@command(
    app,
    "danube schemas set-compatibility orders full",
    "danube schemas set-compatibility orders backward_transitive",
)
def set_compatibility(
    connect: Connect,
    subject: Subject,
    mode: str,
) -> Result:
    """
    Set the compatibility mode of a subject.

    New subjects have the mode "backward": a new version must be able to read data
    written with the latest one.

    Args:
        mode (none|backward|forward|full[_transitive]): The compatibility mode.
            backward, forward and full compare a new version with the latest one; with
            _transitive, they compare it with all versions.
    """
    chosen = Compatibility.parse(mode)
    with connect() as client:
        client.schemas.set_compatibility(subject, chosen)
    return Result(
        {"subject": subject, "compatibility": chosen},
        f"The compatibility mode of {subject} is {chosen.value}.",
    )


@command(
    app,
    "danube schemas delete orders --version 2 --yes",
    "danube schemas delete orders --yes",
)
def delete(
    connect: Connect,
    subject: Subject,
    *,
    version: Annotated[int | None, typer.Option(min=1)] = None,
    force: bool = False,
    yes: parameters.Yes = False,
) -> Result:
    """
    Delete a version of a subject, or the subject with all its versions.

    The version number is not used again. Messages written with the version stay, but
    cannot be decoded any more.

    Args:
        version (-v NUMBER): The version; by default all versions, and the subject.
        force: Delete it even if topics are bound to it, or other schemas refer to it.
    """
    what = subject if version is None else f"{subject}, version {version},"
    confirm(f"Delete {what}?", is_sure=yes)
    with connect() as client:
        client.schemas.delete(subject, version, force=force)
    return Result(
        {"subject": subject, "version": version, "deleted": True},
        f"{what} is deleted.",
    )


def _readable(definition: str) -> str:
    """Return *definition* for people: JSON is indented, other text is unchanged."""
    try:
        return lay_out_json(json.loads(definition))
    except ValueError:
        return definition.removesuffix("\n")


def _get(client: Client, subject: str, version: int | None) -> SchemaVersion:
    if version is None:
        return client.schemas.latest(subject)
    return client.schemas.get(subject, version)


def _schema_from(file: Path | None, type_: str | None, message: str | None) -> Any:
    """
    Return the schema that the options describe.

    Raises:
        InvalidRequest: Its type or its definition is missing.
    """
    if type_ is not None:
        kind = SchemaType.parse(type_)
    elif file is not None and file.suffix in SUFFIXES:
        kind = SUFFIXES[file.suffix]
    else:
        raise InvalidRequest(f"the type of the schema is missing; use --type {TYPES}")
    if file is None and not kind.is_primitive:
        raise InvalidRequest(f"a schema of type {kind.value} requires --file FILE")
    try:
        definition = "" if file is None else file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{file} is not UTF-8 text: {error}") from error
    return Schema(kind, definition, message)


def _without_definition(version: SchemaVersion) -> dict[str, Any]:
    """Return the fields of a version, without its definition, which ``get`` prints."""
    fields: dict[str, Any] = to_json_value(version)
    del fields["definition"]
    return fields


def _json_of_violation(violation: Violation) -> dict[str, Any]:
    fields: dict[str, Any] = to_json_value(violation)
    reason: dict[str, Any] = fields.pop("incompatibility")
    return fields | reason


SUBJECT: Columns = {
    "Subject": "subject",
    "Id": "schema_id",
    "Type": "type",
    "Compatibility": "compatibility",
    "Versions": lambda subject: len(subject.versions),
    "Latest": lambda subject: subject.versions[-1] if subject.versions else None,
}

VERSION: Columns = {
    "Version": "version",
    "Created": lambda version: format_time(to_datetime(version.created_at)),
    "Fingerprint": lambda version: version.fingerprint[:FINGERPRINT_CHARACTERS],
    "Message": "message",
    "Description": "description",
    "Tags": lambda version: ", ".join(version.tags),
}

VIOLATION: Columns = {
    "Version": "version",
    "Direction": "direction",
    "Path": "incompatibility.path",
    "Reason": lambda each: f"{each.incompatibility.text} ({each.incompatibility.rule})",
}

DIFFERENCE: Columns = {
    "Path": "path",
    "Old": lambda each: each.old and excerpt(each.old, TEXT_CHARACTERS_MAX),
    "New": lambda each: each.new and excerpt(each.new, TEXT_CHARACTERS_MAX),
}
