"""The export of definitions from a broker or a cluster."""

from __future__ import annotations

import msgspec

from pydanube.client.client import Client
from pydanube.client.described_topics import describe_all
from pydanube.model.dead_letters import HANDLED_SUBSCRIPTION
from pydanube.model.descriptions import TopicDescription
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName
from pydanube.model.policy import NamespaceSettings
from pydanube.model.setting_documents import (
    document_of,
    namespace_document_of,
    subscription_document_of,
)
from pydanube.model.subscription_lag import base_of
from pydanube_cli.administration.definitions.pure.document import (
    BindingDefinition,
    ConnectorDefinition,
    Definitions,
    ReferenceDefinition,
    RoleDefinition,
    SchemaDefinition,
    SubjectDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)


async def export_definitions(client: Client) -> Definitions:
    """
    Return what the client may see of the definitions.

    The namespace ``system`` is left out, which brokers fill themselves, and so is the
    subscription for handled dead letters, which has a meaning only with its position.
    """
    names = sorted(await client.topics.list())
    counts: dict[str, int] = {}
    for name in names:
        counts[base_of(name)] = counts.get(base_of(name), 0) + 1
    # The settings of all partitions are those of the first one.
    first = {base_of(name): name for name in reversed(names) if not _is_system(name)}
    described = await describe_all(client, first.values())
    return Definitions(
        namespaces=await _namespaces(client),
        subjects=await _subjects(client),
        topics={base_of(each.topic): _topic(each, counts) for each in described},
        roles={
            each.name: RoleDefinition(
                permissions=sorted(one.value for one in each.permissions),
                patterns=list(each.patterns),
            )
            for each in await client.security.roles()
            if not each.is_built_in
        },
        bindings={
            each.id: BindingDefinition(
                member=each.member,
                roles=list(each.roles),
                patterns=list(each.patterns),
            )
            for each in await client.security.bindings()
        },
        connectors=await _connectors(client),
    )


async def _connectors(client: Client) -> dict[str, ConnectorDefinition]:
    found = {}
    for each in (await client.connectors.list()).connectors:
        stored = await client.connectors.describe(each.name)
        found[each.name] = ConnectorDefinition(
            definition=msgspec.json.decode(stored.definition),
            is_paused=stored.is_paused,
        )
    return found


def _is_system(name: str) -> bool:
    return TopicName.parse(name).namespace == SYSTEM_NAMESPACE


async def _namespaces(client: Client) -> dict[str, dict[str, object]]:
    found = {}
    for name in await client.namespaces.list():
        if name != SYSTEM_NAMESPACE:
            each = await client.namespaces.describe(name)
            settings = NamespaceSettings(policy=each.policy, retention=each.retention)
            found[str(name)] = namespace_document_of(settings)
    return found


async def _subjects(client: Client) -> dict[str, SubjectDefinition]:
    found, numbers = {}, set[tuple[str, int]]()
    for name in await client.schemas.subjects():
        versions = await client.schemas.versions(name)
        before = 0
        found[name] = SubjectDefinition(
            compatibility=(await client.schemas.compatibility(name)).value,
            versions=[],
        )
        for each in versions:
            found[name].versions.append(
                SchemaDefinition(
                    type=each.type.value,
                    definition=each.definition,
                    message=each.message,
                    description=each.description,
                    tags=list(each.tags),
                    version=None if each.version == before + 1 else each.version,
                    references=[
                        ReferenceDefinition(
                            name=to.name, subject=to.subject, version=to.version
                        )
                        for to in each.references
                    ],
                )
            )
            before = each.version
            numbers.add((name, before))
    for subject in found.values():
        for definition in subject.versions:
            # Versions may have been deleted by force.
            definition.references = [
                to
                for to in definition.references
                if (to.subject, to.version) in numbers
            ]
    return found


def _topic(topic: TopicDescription, counts: dict[str, int]) -> TopicDefinition:
    base, policy = base_of(topic.topic), topic.policy
    return TopicDefinition(
        partitions=None if base == topic.topic else counts[base],
        reliable=policy.is_reliable,
        durability="written" if policy.durability.value == "written" else "durable",
        ttl_s=policy.ttl_s,
        settings=document_of(topic.settings, is_reliable=policy.is_reliable),
        subscriptions={
            each.subscription: SubscriptionDefinition(
                type=each.type.value,
                settings=subscription_document_of(each.settings),
            )
            for each in topic.subscriptions
            # Those of other topics end with their consumers.
            if policy.is_reliable and each.subscription != HANDLED_SUBSCRIPTION
        },
    )
