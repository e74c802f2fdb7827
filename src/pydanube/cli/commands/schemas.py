"""
`danube schemas`: registers, compares and deletes schemas, and binds topics to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import confirm, run_with_client
from pydanube.cli.output import (
    OutputFormat,
    print_json,
    print_line,
    print_result,
    print_table,
)
from pydanube.cli.parameters import command_group, examples
from pydanube.client.client import DEFAULT_URL
from pydanube.client.schema import Schema
from pydanube.client.schemas import schema_of
from pydanube.model.errors import IncompatibleSchema, InvalidRequest
from pydanube.model.positions import to_datetime
from pydanube.model.schemas import Compatibility, SchemaPolicy, SchemaType
from pydanube.schemas.compatibility import find_violations
from pydanube.schemas.differences import find_differences
from pydanube.servers.errors import exit_code_of

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.schemas import SchemaVersion, SubjectDescription, TopicSchema
    from pydanube.schemas.compatibility import Violation
    from pydanube.schemas.differences import Difference

SUFFIXES = {
    ".avsc": SchemaType.AVRO,
    ".json": SchemaType.JSON_SCHEMA,
    ".proto": SchemaType.PROTOBUF,
}
TYPES = "json_schema|avro|protobuf|string|number|bytes"
MODES = "none|backward|forward|full[_transitive]"
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
        "--message",
        metavar="NAME",
        help="Protobuf: the message of the file that payloads contain; by default the "
        "first.",
    ),
]
Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        "-v",
        min=1,
        metavar="NUMBER",
        help="The version; by default the latest.",
        show_default=False,
    ),
]

app = command_group(
    """
    Manage schemas, and bind topics to them.

    A subject is a name under which versions of a schema are registered; its
    compatibility mode decides which new versions are accepted. Messages carry the id
    of the version that they were written with.
    """,
    "danube schemas register orders -f order.avsc",
    "danube schemas check orders -f order.avsc",
    "danube schemas diff orders",
    "danube schemas bind /default/orders orders --policy enforce",
)


@app.command(
    epilog=examples(
        "danube schemas register orders -f order.avsc",
        "danube schemas register orders -f shop.proto --message shop.Order",
        "danube schemas register greetings --type string",
    )
)
def register(
    subject: Subject,
    *,
    file: File = None,
    type: Type = None,  # noqa: A002  # The option's name.
    message: MessageName = None,
    description: Annotated[
        str,
        typer.Option("--description", metavar="TEXT", help="A description for people."),
    ] = "",
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="TEXT", help="A tag for people; may be repeated."
        ),
    ] = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Register a schema as the latest version of a subject.

    The subject is created if it does not exist. A schema that the subject already has
    is not registered again; an incompatible schema is refused.
    """
    schema = _schema_from(file, type, message)

    async def call(client: Client) -> tuple[SchemaVersion, bool]:
        return await client.schemas.submit(
            subject, schema, description=description, tags=tag or ()
        )

    version, is_new = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json({"is_new": is_new, **_plain_version(version)})
    elif is_new:
        print_line(f"{subject} has version {version.version} (id {version.schema_id}).")
    else:
        print_line(
            f"{subject} already has this schema as version {version.version} (id "
            f"{version.schema_id})."
        )


@app.command(
    epilog=examples(
        "danube schemas get orders",
        "danube schemas get orders --version 1 --format json",
    )
)
def get(
    subject: Subject,
    *,
    version: Version = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Print the definition of a schema."""
    found = run_with_client(url, lambda client: _get(client, subject, version))
    print_result(found, found.definition.removesuffix("\n"), output_format)


@app.command("list", epilog=examples("danube schemas list"))
def list_(
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """List the subjects, with their types and versions."""

    async def call(client: Client) -> list[SubjectDescription]:
        subjects = await client.schemas.subjects()
        return [await client.schemas.describe(each) for each in subjects]

    described = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json(described)
    else:
        print_table(
            ("Subject", "Id", "Type", "Compatibility", "Versions", "Latest"),
            (
                (
                    each.subject,
                    each.schema_id,
                    each.type,
                    each.compatibility,
                    len(each.versions),
                    each.versions[-1] if each.versions else None,
                )
                for each in described
            ),
        )


@app.command(epilog=examples("danube schemas versions orders"))
def versions(
    subject: Subject,
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """List the versions of a subject."""

    async def call(client: Client) -> list[SchemaVersion]:
        return await client.schemas.versions(subject)

    found = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json([_plain_version(each) for each in found])
    else:
        print_table(
            ("Version", "Created", "Fingerprint", "Message", "Description", "Tags"),
            (
                (
                    each.version,
                    to_datetime(each.created_at).isoformat(sep=" ", timespec="seconds"),
                    each.fingerprint[:FINGERPRINT_CHARACTERS],
                    each.message,
                    each.description,
                    ", ".join(each.tags),
                )
                for each in found
            ),
        )


@app.command(
    epilog=examples(
        "danube schemas check orders -f order.avsc",
        "danube schemas check orders -f order.avsc --mode full_transitive",
    )
)
def check(
    subject: Subject,
    *,
    file: File = None,
    type: Type = None,  # noqa: A002
    message: MessageName = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar=MODES,
            help="The compatibility mode; by default that of the subject.",
            show_default=False,
        ),
    ] = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Check whether a schema is compatible with a subject, without registering it.

    If it is not, the reasons are listed and the exit code is 4.
    """
    schema = _schema_from(file, type, message)
    asked = None if mode is None else Compatibility.parse(mode)

    async def call(client: Client) -> tuple[Compatibility, list[Violation]]:
        rule = asked or await client.schemas.compatibility(subject)
        return rule, await client.schemas.check(subject, schema, mode=rule)

    rule, violations = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json(
            {
                "subject": subject,
                "mode": rule,
                "is_compatible": not violations,
                "violations": [_plain_violation(each) for each in violations],
            }
        )
    elif violations:
        _print_violations(violations)
    else:
        print_line(f"The schema is compatible with {subject} ({rule.value}).")
    if violations:
        raise typer.Exit(exit_code_of(IncompatibleSchema))


@app.command(
    epilog=examples(
        "danube schemas diff orders",
        "danube schemas diff orders 1 3",
        "danube schemas diff orders --file order.avsc",
    )
)
def diff(
    subject: Subject,
    old: Annotated[
        int | None,
        typer.Argument(
            metavar="[OLD]",
            min=1,
            help="The older version; by default the one before the newer version.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[
        int | None,
        typer.Argument(
            metavar="[NEW]",
            min=1,
            help="The newer version; by default the latest.",
            show_default=False,
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Compare with the definition in this file instead of a newer version.",
            show_default=False,
        ),
    ] = None,
    type: Type = None,  # noqa: A002
    message: MessageName = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show the differences between two versions, and in which directions they are
    compatible.

    Backward: the new version reads data written with the old one. Forward: the old
    version reads data written with the new one. Full: both.
    """
    if file is not None and new is not None:
        raise InvalidRequest("NEW and --file exclude each other")
    candidate = None if file is None else _schema_from(file, type, message)

    async def call(client: Client) -> tuple[SchemaVersion, SchemaVersion | None]:
        known = (await client.schemas.describe(subject)).versions
        if candidate is not None:
            return await _get(client, subject, old), None
        after = new or (known[-1] if known else 1)
        before = old or max((each for each in known if each < after), default=None)
        if before is None:
            raise InvalidRequest(f"{subject} has no version before {after}")
        return (
            await client.schemas.get(subject, before),
            await client.schemas.get(subject, after),
        )

    before, after = run_with_client(url, call)
    one = schema_of(before).parse()
    other = (
        schema_of(after) if after is not None else candidate or Schema.bytes()
    ).parse()
    found = find_differences(one, other)
    modes = {
        mode: find_violations(mode, other, [(before.version, one)]) for mode in PAIRWISE
    }
    if output_format is OutputFormat.JSON:
        print_json(
            {
                "subject": subject,
                "old_version": before.version,
                "new_version": None if after is None else after.version,
                "differences": found,
                "modes": {
                    mode.value: {
                        "holds": not violations,
                        "violations": [_plain_violation(each) for each in violations],
                    }
                    for mode, violations in modes.items()
                },
            }
        )
        return
    to = str(file) if after is None else f"version {after.version}"
    print_line(f"{subject}: version {before.version} and {to}")
    print_line()
    _print_differences(found)
    print_line()
    print_table(
        ("Mode", "Compatible"),
        ((mode, not violations) for mode, violations in modes.items()),
    )
    if modes[Compatibility.FULL]:
        print_line()
        _print_violations(modes[Compatibility.FULL])


@app.command(
    epilog=examples(
        "danube schemas set-compatibility orders full",
        "danube schemas set-compatibility orders backward_transitive",
    )
)
def set_compatibility(
    subject: Subject,
    mode: Annotated[
        str,
        typer.Argument(
            metavar=MODES,
            help="The compatibility mode. backward, forward and full compare a new "
            "version with the latest one; with _transitive, they compare it with all "
            "versions.",
            show_default=False,
        ),
    ],
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Set the compatibility mode of a subject.

    New subjects have the mode "backward": a new version must be able to read data
    written with the latest one.
    """
    chosen = Compatibility.parse(mode)

    async def call(client: Client) -> None:
        await client.schemas.set_compatibility(subject, chosen)

    run_with_client(url, call)
    print_result(
        {"subject": subject, "compatibility": chosen},
        f"The compatibility mode of {subject} is {chosen.value}.",
        output_format,
    )


@app.command(
    epilog=examples(
        "danube schemas delete orders --version 2 --yes",
        "danube schemas delete orders --yes",
    )
)
def delete(
    subject: Subject,
    *,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            "-v",
            min=1,
            metavar="NUMBER",
            help="The version; by default all versions, and the subject.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it even if topics are bound to it.")
    ] = False,
    yes: parameters.Yes = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Delete a version of a subject, or the subject with all its versions.

    The version number is not used again. Messages written with the version stay, but
    cannot be decoded any more.
    """
    what = subject if version is None else f"{subject}, version {version},"
    confirm(f"Delete {what}?", is_sure=yes)

    async def call(client: Client) -> None:
        await client.schemas.delete(subject, version, force=force)

    run_with_client(url, call)
    print_result(
        {"subject": subject, "version": version, "deleted": True},
        f"{what} is deleted.",
        output_format,
    )


@app.command(
    epilog=examples(
        "danube schemas bind /default/orders orders --policy enforce",
        "danube schemas bind /default/orders orders --validate-payload --min-version 2",
        "danube schemas bind /default/orders --none",
    )
)
def bind(
    topic: parameters.Topic,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]",
            help="The subject; without it and without --none, the current binding is "
            "shown.",
            show_default=False,
        ),
    ] = None,
    *,
    none: Annotated[bool, typer.Option("--none", help="Remove the binding.")] = False,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="none|warn|enforce",
            help="The choice for messages that do not match the subject: none "
            "accepts them; warn accepts and counts them; enforce refuses them.",
        ),
    ] = SchemaPolicy.WARN.value,
    validate_payload: Annotated[
        bool,
        typer.Option(
            "--validate-payload",
            help="Validate every payload, not only its schema id.",
        ),
    ] = False,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            "-v",
            min=1,
            metavar="NUMBER",
            help="Accept only this version of the subject.",
            show_default=False,
        ),
    ] = None,
    min_version: Annotated[
        int | None,
        typer.Option(
            "--min-version",
            min=1,
            metavar="NUMBER",
            help="Accept only this version of the subject and later ones.",
            show_default=False,
        ),
    ] = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Bind a topic to a subject, or show its binding.

    The binding takes effect at once, for all partitions and for connected producers.
    """
    if none and subject is not None:
        raise InvalidRequest("SUBJECT and --none exclude each other")
    chosen = SchemaPolicy.parse(policy)

    async def call(client: Client) -> TopicSchema | None:
        if none or subject is not None:
            await client.schemas.bind(
                topic,
                subject,
                policy=chosen,
                validates_payload=validate_payload,
                version=version,
                version_min=min_version,
            )
        return await client.schemas.topic_schema(topic)

    schema = run_with_client(url, call)
    print_result(
        {"topic": topic, "schema": schema},
        f"{topic} is bound to {describe_binding(schema)}.",
        output_format,
    )


def describe_binding(schema: TopicSchema | None) -> str:
    """Return the binding of a topic as text."""
    if schema is None:
        return "no schema"
    text = f"{schema.subject} ({schema.policy.value}"
    if schema.validates_payload:
        text += ", payloads are validated"
    if schema.version is not None:
        text += f", only version {schema.version}"
    if schema.version_min is not None:
        text += f", version {schema.version_min} or later"
    return text + ")"


async def _get(client: Client, subject: str, version: int | None) -> SchemaVersion:
    if version is None:
        return await client.schemas.latest(subject)
    return await client.schemas.get(subject, version)


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


def _plain_version(version: SchemaVersion) -> dict[str, object]:
    """Return the fields of a version, without its definition, which ``get`` prints."""
    return {
        "subject": version.subject,
        "schema_id": version.schema_id,
        "version": version.version,
        "type": version.type,
        "message": version.message,
        "fingerprint": version.fingerprint,
        "description": version.description,
        "created_at": version.created_at,
        "created_by": version.created_by,
        "tags": version.tags,
    }


def _plain_violation(violation: Violation) -> dict[str, object]:
    return {
        "version": violation.version,
        "direction": violation.direction,
        "path": violation.incompatibility.path,
        "rule": violation.incompatibility.rule,
        "text": violation.incompatibility.text,
    }


def _print_differences(found: list[Difference]) -> None:
    if not found:
        print_line("There are no differences.")
        return
    print_table(
        ("Path", "Old", "New"),
        ((each.path, _short(each.old), _short(each.new)) for each in found),
    )


def _print_violations(violations: list[Violation]) -> None:
    print_table(
        ("Version", "Direction", "Path", "Reason"),
        (
            (
                each.version,
                each.direction,
                each.incompatibility.path,
                f"{each.incompatibility.text} ({each.incompatibility.rule})",
            )
            for each in violations
        ),
    )


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return text[: TEXT_CHARACTERS_MAX - 1] + "\u2026"
