"""
The service ``danube_schema.SchemaRegistry``: subjects, versions, schemas of topics.

The texts of errors are those that the original's tools and tests expect.  The statuses
differ: an error of the caller is INVALID_ARGUMENT, NOT_FOUND, or FAILED_PRECONDITION if
it depends on the registered versions.  Clients do not retry these.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pydanube.model.errors import BrokerError, SchemaNotFound
from pydanube.model.names import TopicName
from pydanube.model.schemas import (
    Compatibility,
    SchemaPolicy,
    SchemaType,
    TopicSchema,
)
from pydanube.wire.pb import schema_registry_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_broker.operations.authorization import visible_subjects
from pydanube_broker.servers.grpc.services import StatusError, refusing
from pydanube_broker.wire.grpc.danube_schema_api import (
    definition_from_wire,
    subject_to_wire,
    version_info_to_wire,
    version_to_wire,
)
from pydanube_broker.wire.grpc.status import StatusCode


class SchemaRegistryService:
    """The service for a broker's schema registry."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = broker.registry

    # Subjects and versions.

    async def register_schema(
        self, request: pb.RegisterSchemaRequest
    ) -> pb.RegisterSchemaResponse:
        """Register a version, or return the one with the same schema."""
        with refusing(BrokerError, prefix="Failed to register schema: "):
            type_ = SchemaType.parse(request.schema_type)
            new = NewSchema(
                type=type_,
                definition=definition_from_wire(request, type_),
                description=request.description,
                created_by=request.created_by,
                tags=tuple(request.tags),
            )
            found, is_new = await self._registry.register(request.subject, new)
        return pb.RegisterSchemaResponse(
            schema_id=found.schema_id,
            version=found.version,
            is_new_version=is_new,
            fingerprint=found.fingerprint,
        )

    async def get_schema(self, request: pb.GetSchemaRequest) -> pb.GetSchemaResponse:
        """Return a version of the subject with an id, by default the latest."""
        version = request.version if request.HasField("version") else None
        try:
            found = await self._registry.by_id(request.schema_id, version)
        except SchemaNotFound as error:
            text = f"Schema not found for ID: {request.schema_id}"
            if version is not None:
                text += f", version {version}"
            raise SchemaNotFound(text) from error
        mode = (await self._registry.describe(found.subject)).compatibility
        return version_to_wire(found, mode)

    async def get_latest_schema(
        self, request: pb.GetLatestSchemaRequest
    ) -> pb.GetSchemaResponse:
        """Return the latest version of a subject."""
        found = await self._registry.version(request.subject)
        mode = (await self._registry.describe(request.subject)).compatibility
        return version_to_wire(found, mode)

    async def list_versions(
        self, request: pb.ListVersionsRequest
    ) -> pb.ListVersionsResponse:
        """List the versions of a subject in order."""
        versions = await self._registry.versions(request.subject)
        return pb.ListVersionsResponse(versions=map(version_info_to_wire, versions))

    async def list_subjects(self, _: pb.ListSubjectsRequest) -> pb.ListSubjectsResponse:
        """List all subjects by name."""
        summaries = []
        for subject in visible_subjects(await self._registry.subjects()):
            # The subject may be deleted meanwhile.
            with suppress(SchemaNotFound):
                described = await self._registry.describe(subject)
                summaries.append(subject_to_wire(described))
        return pb.ListSubjectsResponse(subjects=summaries)

    async def delete_schema_version(
        self, request: pb.DeleteSchemaVersionRequest
    ) -> pb.DeleteSchemaVersionResponse:
        """Delete a version unless it is the only one that a topic allows."""
        with refusing(BrokerError, prefix="Failed to delete schema version: "):
            await self._broker.schemas.delete(request.subject, request.version)
        return pb.DeleteSchemaVersionResponse(
            success=True,
            message=f"Deleted version {request.version} for subject {request.subject}",
        )

    # Compatibility.

    async def check_compatibility(
        self, request: pb.CheckCompatibilityRequest
    ) -> pb.CheckCompatibilityResponse:
        """Check whether a schema may become the next version of a subject."""
        with refusing(BrokerError, prefix="Failed to check compatibility: "):
            override = request.compatibility_mode
            violations = await self._registry.check(
                request.subject,
                NewSchema(
                    type=SchemaType.parse(request.schema_type),
                    definition=request.new_schema_definition,
                ),
                Compatibility.parse(override) if override else None,
            )
        return pb.CheckCompatibilityResponse(
            is_compatible=not violations, errors=map(str, violations)
        )

    async def set_compatibility_mode(
        self, request: pb.SetCompatibilityModeRequest
    ) -> pb.SetCompatibilityModeResponse:
        """Set the compatibility mode for later versions."""
        subject, mode = request.subject, request.compatibility_mode
        parsed = Compatibility.parse(mode)
        with refusing(BrokerError, prefix="Failed to set compatibility mode: "):
            await self._registry.set_compatibility(subject, parsed)
        return pb.SetCompatibilityModeResponse(
            success=True,
            message=f"Set compatibility mode to {mode} for subject {subject}",
        )

    # Schemas of topics.

    async def configure_topic_schema(
        self, request: pb.ConfigureTopicSchemaRequest
    ) -> pb.ConfigureTopicSchemaResponse:
        """Bind a topic to a subject, keeping pinned versions of the same subject."""
        policy = SchemaPolicy.parse(request.validation_policy)
        name, subject = TopicName.parse(request.topic_name), request.schema_subject
        known = (await self._broker.catalog.get(name)).schema
        if known is None or known.subject != subject:
            known = TopicSchema(subject=subject)
        await self._bind(name, known, policy, request.enable_payload_validation)
        return pb.ConfigureTopicSchemaResponse(
            success=True,
            message=f"Schema configuration set for topic '{name}': subject "
            f"'{subject}', validation policy {policy.value}",
        )

    async def update_topic_validation_policy(
        self, request: pb.UpdateTopicValidationPolicyRequest
    ) -> pb.UpdateTopicValidationPolicyResponse:
        """Set the validation policy of a topic that is bound to a subject."""
        policy = SchemaPolicy.parse(request.validation_policy)
        name = TopicName.parse(request.topic_name)
        known = (await self._broker.catalog.get(name)).schema
        if known is None:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"Topic '{name}' has no schema subject: configure one first",
            )
        await self._bind(name, known, policy, request.enable_payload_validation)
        return pb.UpdateTopicValidationPolicyResponse(
            success=True,
            message=f"Validation policy of topic '{name}' is {policy.value}",
        )

    async def get_topic_schema_config(
        self, request: pb.GetTopicSchemaConfigRequest
    ) -> pb.GetTopicSchemaConfigResponse:
        """Return the subject of a topic; empty if it is not bound."""
        name = TopicName.parse(request.topic_name)
        schema = (await self._broker.catalog.get(name)).schema
        if schema is None:
            return pb.GetTopicSchemaConfigResponse(
                validation_policy=SchemaPolicy.NONE.value
            )
        schema_id = 0
        with suppress(SchemaNotFound):
            schema_id = (await self._registry.describe(schema.subject)).schema_id
        return pb.GetTopicSchemaConfigResponse(
            schema_subject=schema.subject,
            validation_policy=schema.policy.value,
            enable_payload_validation=schema.validates_payload,
            schema_id=schema_id,
        )

    async def _bind(
        self,
        name: TopicName,
        known: TopicSchema,
        policy: SchemaPolicy,
        validates_payload: bool,
    ) -> None:
        schema = replace(known, policy=policy, validates_payload=validates_payload)
        await self._broker.topics.configure(name, schema=schema)
