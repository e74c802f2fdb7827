"""The storing of definitions in a broker, and what that would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pydanube.client.client import Client
from pydanube.model.errors import NotFound, PermissionDenied
from pydanube.security.permissions import Permission
from pydanube_connect.definitions import (
    Definition,
    access_to_subject,
    accesses_of,
    changes_of,
)


class Action(Enum):
    """The effect of a definition on what is stored."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The effect that a definition will have."""

    definition: Definition
    action: Action
    changes: tuple[str, ...]
    """The differences from what is stored, in words."""
    revision: int
    """The stored revision; 0: there is none."""


async def plan_definitions(
    client: Client, definitions: Sequence[Definition]
) -> list[Planned]:
    """
    Return what storing *definitions* would change.

    Raises:
        PermissionDenied: The client, which becomes the author, may not do what a
            connector does, so the connector would not run.
    """
    for each in definitions:
        await _check_accesses(client, each)
    return [await _plan(client, each) for each in definitions]


async def store_definitions(client: Client, planned: Sequence[Planned]) -> None:
    """
    Store what *planned* would change, unless somebody else has changed it meanwhile.

    Raises:
        Conflict: A definition has another revision by now; those before it are stored.
    """
    for each in planned:
        if each.action is not Action.UNCHANGED:
            await client.connectors.set(
                each.definition.name,
                each.definition.topic,
                each.definition.text,
                expected_revision=each.revision,
            )


async def _plan(client: Client, definition: Definition) -> Planned:
    try:
        stored = await client.connectors.describe(definition.name)
    except NotFound:
        return Planned(
            definition=definition, action=Action.CREATED, changes=(), revision=0
        )
    changes = tuple(changes_of(stored.definition, definition.text))
    return Planned(
        definition=definition,
        action=Action.CHANGED if changes else Action.UNCHANGED,
        changes=changes,
        revision=stored.revision,
    )


async def _check_accesses(client: Client, definition: Definition) -> None:
    if not (await client.security.who_am_i()).is_enforced:
        return
    for permission, topic in accesses_of(definition.declared):
        await _check(client, definition.name, permission, topic)
    declared = definition.declared
    of_subject = await access_to_subject(client, declared, declared.spec.topic)
    if of_subject is not None:
        await _check(client, definition.name, *of_subject)


async def _check(
    client: Client, name: str, permission: Permission, resource: str
) -> None:
    found = await client.security.check_access(permission.value, resource)
    if not found.allowed:
        raise PermissionDenied(
            f"{name} acts for you, and you may not {permission.value} {resource}: "
            f"{found.rule}"
        )
