"""The commands of `danube-admin` that are about schemas."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pydanube.cli import scripts
from pydanube.cli.answers import print_json, print_line, printable
from pydanube.cli.schema_calls import (
    TYPES,
    definition_of,
    registered_document,
    subject_document,
    version_document,
)
from pydanube.cli.topic_arguments import InNamespace, Topic, topic_name
from pydanube.model.errors import InvalidRequest
from pydanube.wire.pb import schema_registry_pb2 as pb

schemas = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Subjects and versions of the schema registry.",
)

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Its name.")]

SchemaType = Annotated[str, typer.Option(metavar=TYPES, help="Its language.")]

SchemaFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The schema.")
]

SchemaText = Annotated[
    str | None, typer.Option("--schema", metavar="TEXT", help="The same as text.")
]


class Mode(Enum):
    """What a new version must be able to do."""

    NONE = "none"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL_TRANSITIVE = "full_transitive"


class Policy(Enum):
    """What becomes of messages that do not keep to the schema."""

    NONE = "none"
    WARN = "warn"
    ENFORCE = "enforce"


_MODES = "none|backward|forward|full"
_POLICIES = "none|warn|enforce"


# Subjects and versions.


@schemas.command()
def register(
    ctx: typer.Context,
    subject: Subject,
    *,
    schema_type: SchemaType,
    file: SchemaFile = None,
    schema: SchemaText = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
    tags: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Labels; may be repeated.")
    ] = None,
    output: scripts.OutputOption = None,
) -> None:
    """Add a version to a subject, or find the one that is the same."""
    request = pb.RegisterSchemaRequest(
        subject=subject,
        schema_type=schema_type,
        schema_definition=definition_of(file, schema),
        description=description,
        created_by=os.environ.get("USER") or "admin",
        tags=tags or (),
    )
    answer = ctx.obj.registry_call("RegisterSchema", request)
    if output is not None:
        print_json(registered_document(subject, answer))
        return
    if answer.is_new_version:
        print_line("✅ Registered new schema version")
    else:
        print_line("✅ Schema already exists")
    print_line(f"Subject: {subject}")
    print_line(f"Schema ID: {answer.schema_id}")
    print_line(f"Version: {answer.version}")
    print_line(f"Fingerprint: {answer.fingerprint}")


@schemas.command()
def get(
    ctx: typer.Context,
    *,
    schema_id: Annotated[
        int | None, typer.Option("--id", min=1, metavar="N", help="Of its subject.")
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --id; by default the latest."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="SUBJECT", help="The latest of this subject.")
    ] = None,
    output: scripts.OutputOption = None,
) -> None:
    """Show a schema."""
    if (schema_id is None) == (subject is None):
        raise InvalidRequest("either --id or --subject says which schema")
    if subject is not None:
        latest = pb.GetLatestSchemaRequest(subject=subject)
        found = ctx.obj.registry_call("GetLatestSchema", latest)
        if version is not None:
            request = pb.GetSchemaRequest(schema_id=found.schema_id, version=version)
            found = ctx.obj.registry_call("GetSchema", request)
    else:
        request = pb.GetSchemaRequest(schema_id=schema_id, version=version)
        found = ctx.obj.registry_call("GetSchema", request)
    document = version_document(found)
    if output is not None:
        print_json(document)
        return
    definition = document.pop("schema_definition")
    for name, value in document.items():
        text = ", ".join(value) if isinstance(value, list) else value
        print_line(f"{name.replace('_', ' ').title().replace('Id', 'ID')}: {text}")
    print_line("Schema Definition:")
    for line in definition.splitlines():
        print_line(printable(line))


@schemas.command()
def versions(
    ctx: typer.Context, subject: Subject, *, output: scripts.OutputOption = None
) -> None:
    """List the versions of a subject."""
    request = pb.ListVersionsRequest(subject=subject)
    answer = ctx.obj.registry_call("ListVersions", request)
    if output is not None:
        names = (
            *("version", "created_at", "created_by", "description"),
            *("fingerprint", "schema_id"),
        )
        print_json([{n: getattr(each, n) for n in names} for each in answer.versions])
        return
    print_line(f"Versions of subject '{subject}':")
    for each in answer.versions:
        print_line(
            f"  Version {each.version}: schema_id={each.schema_id}, "
            f"fingerprint={each.fingerprint}"
        )


@schemas.command()
def check(
    ctx: typer.Context,
    subject: Subject,
    *,
    schema_type: SchemaType,
    file: SchemaFile = None,
    schema: SchemaText = None,
    mode: Annotated[
        Mode | None,
        typer.Option(metavar=_MODES, help="Instead of the subject's own mode."),
    ] = None,
) -> None:
    """Say whether a schema could be the next version; exit code 1 if it could not."""
    request = pb.CheckCompatibilityRequest(
        subject=subject,
        schema_type=schema_type,
        new_schema_definition=definition_of(file, schema),
        compatibility_mode=None if mode is None else mode.value,
    )
    answer = ctx.obj.registry_call("CheckCompatibility", request)
    if answer.is_compatible:
        print_line(f"✅ Schema is compatible with subject '{subject}'")
        return
    print_line(f"❌ Schema is NOT compatible with subject '{subject}'")
    for error in answer.errors:
        print_line(f"  - {printable(error)}")
    raise typer.Exit(1)


@schemas.command("get-compatibility")
def get_compatibility(
    ctx: typer.Context, subject: Subject, *, output: scripts.OutputOption = None
) -> None:
    """Show what a new version of a subject must be able to do."""
    latest = pb.GetLatestSchemaRequest(subject=subject)
    found = ctx.obj.registry_call("GetLatestSchema", latest)
    mode = found.compatibility_mode.upper()
    if output is not None:
        print_json({"subject": subject, "compatibility_mode": mode})
        return
    print_line(f"Subject: {subject}")
    print_line(f"Compatibility Mode: {mode}")


@schemas.command("set-compatibility")
def set_compatibility(
    ctx: typer.Context,
    subject: Subject,
    *,
    mode: Annotated[
        Mode, typer.Option(metavar=_MODES, help="Each also with _transitive.")
    ],
) -> None:
    """Say what a new version of a subject must be able to do."""
    request = pb.SetCompatibilityModeRequest(
        subject=subject, compatibility_mode=mode.value
    )
    ctx.obj.registry_call("SetCompatibilityMode", request)
    print_line(f"✅ Compatibility mode set for subject '{subject}'")
    print_line(f"Mode: {mode.value.upper()}")


@schemas.command()
def delete(
    ctx: typer.Context,
    subject: Subject,
    *,
    version: Annotated[int, typer.Option(min=1, metavar="N", help="Which one.")],
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Without it, nothing is deleted.")
    ] = False,
) -> None:
    """Delete a version that no topic is pinned to."""
    if not confirm:
        raise InvalidRequest(
            f"version {version} of {subject} would be deleted for ever; say --confirm "
            "if that is meant"
        )
    request = pb.DeleteSchemaVersionRequest(subject=subject, version=version)
    ctx.obj.registry_call("DeleteSchemaVersion", request)
    print_line(f"✅ Deleted version {version} of subject '{subject}'")


@schemas.command("list-subjects")
def list_subjects(ctx: typer.Context, *, output: scripts.OutputOption = None) -> None:
    """List the subjects."""
    answer = ctx.obj.registry_call("ListSubjects", pb.ListSubjectsRequest())
    documents = [subject_document(each) for each in answer.subjects]
    if output is not None:
        print_json(documents)
        return
    for each in documents:
        print_line(
            f"Subject: {each['subject']} (type: {each['schema_type']}, latest version: "
            f"{each['latest_version']}, schema_id: {each['schema_id']}, "
            f"compatibility: {each['compatibility_mode']})"
        )


# Schemas of topics.


def configure_schema(
    ctx: typer.Context,
    topic: Topic,
    *,
    subject: Annotated[
        str, typer.Option(metavar="SUBJECT", help="What messages keep to.")
    ],
    validation_policy: Annotated[
        Policy,
        typer.Option(metavar=_POLICIES, help="What becomes of those that do not."),
    ] = Policy.NONE,
    enable_payload_validation: Annotated[
        bool,
        typer.Option("--enable-payload-validation", help="Also look into payloads."),
    ] = False,
    namespace: InNamespace = None,
) -> None:
    """Have the messages of a topic keep to a subject."""
    name = topic_name(topic, namespace)
    request = pb.ConfigureTopicSchemaRequest(
        topic_name=name,
        schema_subject=subject,
        validation_policy=validation_policy.name,
        enable_payload_validation=enable_payload_validation,
    )
    ctx.obj.registry_call("ConfigureTopicSchema", request)
    print_line(f"✅ Schema configuration set for topic '{name}'")
    print_line(f"   Schema Subject: {subject}")
    print_line(f"   Validation Policy: {validation_policy.name}")
    print_line(f"   Payload Validation: {_switch(enable_payload_validation)}")


def set_validation_policy(
    ctx: typer.Context,
    topic: Topic,
    *,
    policy: Annotated[
        Policy, typer.Option(metavar=_POLICIES, help="What becomes of messages.")
    ],
    enable_payload_validation: Annotated[
        bool,
        typer.Option("--enable-payload-validation", help="Also look into payloads."),
    ] = False,
    namespace: InNamespace = None,
) -> None:
    """Change what becomes of messages that do not keep to the topic's subject."""
    name = topic_name(topic, namespace)
    request = pb.UpdateTopicValidationPolicyRequest(
        topic_name=name,
        validation_policy=policy.name,
        enable_payload_validation=enable_payload_validation,
    )
    ctx.obj.registry_call("UpdateTopicValidationPolicy", request)
    print_line(f"✅ Validation policy updated for topic '{name}'")
    print_line(f"   Policy: {policy.name}")
    print_line(f"   Payload Validation: {_switch(enable_payload_validation)}")


def get_schema_config(
    ctx: typer.Context,
    topic: Topic,
    *,
    namespace: InNamespace = None,
    output: scripts.OutputOption = None,
) -> None:
    """Show what the messages of a topic keep to."""
    name = topic_name(topic, namespace)
    request = pb.GetTopicSchemaConfigRequest(topic_name=name)
    answer = ctx.obj.registry_call("GetTopicSchemaConfig", request)
    policy = answer.validation_policy.upper()
    if output is not None:
        print_json(
            {
                "topic": name,
                "schema_subject": answer.schema_subject,
                "validation_policy": policy,
                "enable_payload_validation": answer.enable_payload_validation,
                "schema_id": answer.schema_id,
            }
        )
        return
    if not answer.schema_subject:
        print_line("No schema configured for this topic")
        return
    print_line(f"Topic: {name}")
    print_line(f"Schema Subject: {answer.schema_subject}")
    print_line(f"Validation Policy: {policy}")
    print_line(f"Payload Validation: {_switch(answer.enable_payload_validation)}")
    print_line(f"Schema ID: {answer.schema_id}")


def add_topic_commands(topics: typer.Typer) -> None:
    """Let the group of topics have the commands that are about their schemas."""
    topics.command("configure-schema")(configure_schema)
    topics.command("set-validation-policy")(set_validation_policy)
    topics.command("get-schema-config")(get_schema_config)


def _switch(is_on: bool) -> str:
    return "ENABLED" if is_on else "DISABLED"
