"""The commands of `danube-cli schema`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.cli.answers import Format, print_json, print_line, print_table, printable
from pydanube.cli.grpc_calls import ask
from pydanube.cli.schema_calls import (
    TYPES,
    definition_of,
    registered_document,
    registry_call,
    subject_document,
    version_document,
)
from pydanube.wire.pb import schema_registry_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pydanube.cli.grpc_calls import Caller

schema = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Subjects and versions of the schema registry.",
)

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Its name.")]

SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="The schema; not for primitive types."
    ),
]

TypeOption = Annotated[
    str,
    typer.Option("--schema-type", "-t", metavar=TYPES, help="Its language."),
]

OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="For people, or JSON.")
]


@schema.callback()
def schema_registry(
    ctx: typer.Context,
    service_addr: Annotated[
        str,
        typer.Option(
            "--service-addr",
            "-s",
            metavar="URL",
            help="The broker's gRPC interface.",
        ),
    ] = "http://127.0.0.1:6650",
) -> None:
    """Register, read and compare schemas."""
    ctx.obj = service_addr


@schema.command()
def register(
    ctx: typer.Context,
    subject: Subject,
    *,
    schema_type: TypeOption,
    file: SchemaFile = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a version to a subject, or find the one that is the same."""
    request = pb.RegisterSchemaRequest(
        subject=subject,
        schema_type=schema_type,
        schema_definition=definition_of(file),
        description=description,
        created_by="danube-cli",
    )
    answer = _ask(ctx, "RegisterSchema", request)
    if output is Format.JSON:
        print_json(registered_document(subject, answer))
        return
    print_line("✅ Schema registered successfully!")
    print_line(f"Subject: {subject}")
    print_line(f"Schema ID: {answer.schema_id}")
    print_line(f"Version: {answer.version}")
    print_line(f"Fingerprint: {answer.fingerprint}")
    if not answer.is_new_version:
        print_line("The subject had this schema already.")


@schema.command()
def get(
    ctx: typer.Context,
    subject: Subject,
    *,
    version: Annotated[
        int | None,
        typer.Option(
            "--version", "-v", min=1, metavar="N", help="By default the latest."
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a schema."""
    found = _ask(ctx, "GetLatestSchema", pb.GetLatestSchemaRequest(subject=subject))
    if version is not None:
        request = pb.GetSchemaRequest(schema_id=found.schema_id, version=version)
        found = _ask(ctx, "GetSchema", request)
    document = version_document(found)
    if output is Format.JSON:
        print_json(document)
        return
    definition = document.pop("schema_definition")
    for name, value in document.items():
        text = ", ".join(value) if isinstance(value, list) else value
        print_line(f"{name.replace('_', ' ').title()}: {text}")
    print_line("Definition:")
    for line in definition.splitlines():
        print_line(printable(line))


@schema.command()
def versions(
    ctx: typer.Context, subject: Subject, *, output: OutputOption = Format.TABLE
) -> None:
    """List the versions of a subject."""
    answer = _ask(ctx, "ListVersions", pb.ListVersionsRequest(subject=subject))
    numbers = [each.version for each in answer.versions]
    if output is Format.JSON:
        print_json({"subject": subject, "versions": numbers})
        return
    print_line(f"Versions of {subject}:")
    for number in numbers:
        print_line(f"   • v{number}")


@schema.command()
def check(
    ctx: typer.Context,
    subject: Subject,
    *,
    schema_type: TypeOption,
    file: SchemaFile = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say whether a schema could be the next version; exit code 1 if it could not."""
    request = pb.CheckCompatibilityRequest(
        subject=subject,
        schema_type=schema_type,
        new_schema_definition=definition_of(file),
    )
    answer = _ask(ctx, "CheckCompatibility", request)
    if output is Format.JSON:
        print_json(
            {"is_compatible": answer.is_compatible, "errors": list(answer.errors)}
        )
    elif answer.is_compatible:
        print_line("✅ Schema is COMPATIBLE")
    else:
        print_line("❌ Schema is NOT COMPATIBLE")
        for error in answer.errors:
            print_line(f"   • {printable(error)}")
    if not answer.is_compatible:
        raise typer.Exit(1)


@schema.command("list")
def list_subjects(ctx: typer.Context, *, output: OutputOption = Format.TABLE) -> None:
    """List the subjects."""
    answer = _ask(ctx, "ListSubjects", pb.ListSubjectsRequest())
    documents = [subject_document(each) for each in answer.subjects]
    if output is Format.JSON:
        print_json(documents)
        return
    print_table(
        ("SUBJECT", "TYPE", "LATEST", "SCHEMA ID", "COMPATIBILITY"),
        (
            (
                each["subject"],
                each["schema_type"],
                each["latest_version"],
                each["schema_id"],
                each["compatibility_mode"],
            )
            for each in documents
        ),
    )


@schema.command()
def delete(
    ctx: typer.Context,
    subject: Subject,
    *,
    version: Annotated[
        int, typer.Option("--version", "-v", min=1, metavar="N", help="Which one.")
    ],
) -> None:
    """Delete a version that no topic is pinned to."""
    request = pb.DeleteSchemaVersionRequest(subject=subject, version=version)
    answer = _ask(ctx, "DeleteSchemaVersion", request)
    print_line(f"✅ {answer.message}")


def _ask(ctx: typer.Context, method: str, request: Message) -> Any:
    async def question(caller: Caller) -> Any:
        return await registry_call(caller, method, request)

    return ask(ctx.obj, question)
