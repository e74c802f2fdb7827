"""The identity of the user, roles, bindings, and API keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from nicegui import ui

from pydanube.client.operations.security import ClientIdentity
from pydanube.model.api_keys import ApiKeyDescription
from pydanube.model.errors import BrokerError
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_time
from pydanube.security.permissions import Permission
from pydanube.security.policy import AccessPolicy, Binding, Role
from pydanube.security.principals import Method, Principal
from pydanube_console.access import CLUSTER
from pydanube_console.frame import Page, frame
from pydanube_console.pure.markup import Column, Html, badge, facts, join, panel, table
from pydanube_console.sessions import Session


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Security", current="/security") as page:
        identity = page.show()
        keys = page.show()
        with ui.row().classes("tools"):
            name = ui.input("Name of an API key").props("dense outlined")
            create = ui.button("Create key").props("unelevated")
            revoke = ui.button("Revoke key").props("flat color=negative")
        bindings = page.show()
        with ui.row().classes("tools"):
            member = ui.input("Member", placeholder="user:billing").props(
                "dense outlined"
            )
            roles = ui.input("Roles", placeholder="consumer").props("dense outlined")
            patterns = ui.input("On", placeholder="/shop/*").props("dense outlined")
            add = ui.button("Add binding").props("unelevated")
            known = ui.select([], label="Binding").props("dense outlined")
            known.style("min-width: 10rem")
            remove = ui.button("Remove").props("flat color=negative")
        all_roles = page.show()

        async def update() -> None:
            client = page.client
            identity.set_content(_identity(session))
            found_keys: list[ApiKeyDescription] = []
            with suppress(BrokerError):
                found_keys = await client.security.api_keys()
            keys.set_content(render_keys(found_keys))
            found = await client.security.bindings()
            bindings.set_content(render_bindings(found))
            options = [each.id for each in found]
            if options != known.options:
                known.set_options(options)
            found_roles = await client.security.roles()
            all_roles.set_content(render_roles(found_roles))
            refusal = ""
            if not may_grant(session.identity, found, found_roles):
                refusal = f"You need the permission {Permission.GRANT.value}."
            for each in (add, remove):
                page.enable(each, refusal)

        async def add_binding() -> None:
            await page.client.security.add_binding(
                member.value or "", _words(roles.value), _words(patterns.value)
            )

        create.on_click(lambda: _create_key(page, name.value or ""))
        revoke.on_click(lambda: _revoke_key(page, name.value or ""))
        add.on_click(lambda: page.attempt(add_binding, "The binding is added"))
        remove.on_click(
            lambda: page.attempt(
                lambda: page.client.security.remove_binding(known.value or ""),
                "Removed",
            )
        )
        for each in (create, revoke):
            await page.allow(each, Permission.CLUSTER_ADMIN, CLUSTER)
        page.refresh(update)


def may_grant(
    identity: ClientIdentity, bindings: Sequence[Binding], roles: Sequence[Role]
) -> bool:
    """Return whether a user who sees *bindings* and *roles* may grant anything."""
    if identity.is_superuser or not identity.is_enforced:
        return True
    policy = AccessPolicy(
        {each.name: each for each in roles}, {each.id: each for each in bindings}
    )
    method = cast(Method, identity.method)
    principal = Principal(identity.name, method, identity.groups)
    return policy.holds_anywhere(principal, Permission.GRANT)


def _identity(session: Session) -> Html:
    identity = session.identity
    if not identity.is_enforced:
        text = "This broker has no security: everybody may do everything."
        return panel("Identity", badge("Off", "warn"), " ", text)
    return panel(
        "Identity",
        facts(
            [
                ("Name", identity.name),
                ("Proved by", identity.method.replace("_", " ")),
                ("Groups", ", ".join(identity.groups) or "none"),
                ("Superuser", "yes" if identity.is_superuser else "no"),
            ]
        ),
    )


def render_keys(found: list[ApiKeyDescription]) -> Html:
    """Return the API keys; the keys themselves are not stored."""
    rows = [
        (
            each.name,
            each.principal,
            ", ".join(each.groups),
            format_time(to_datetime(each.created_at)),
            "never"
            if each.expires_at is None
            else format_time(to_datetime(each.expires_at)),
        )
        for each in found
    ]
    columns = [
        Column("Name"),
        Column("Principal"),
        Column("Groups", is_wide_only=True),
        Column("Created", is_wide_only=True),
        Column("Expires"),
    ]
    empty = "There are no API keys, or you may not see them."
    return panel("API keys", table(columns, rows, caption="API keys", empty=empty))


def render_bindings(found: list[Binding]) -> Html:
    """Return the bindings."""
    rows = [
        (each.member, ", ".join(each.roles), ", ".join(each.patterns), each.id)
        for each in found
    ]
    columns = [
        Column("Member"),
        Column("Roles"),
        Column("On"),
        Column("Id", is_wide_only=True),
    ]
    return panel("Bindings", table(columns, rows, caption="Bindings"))


def render_roles(found: list[Role]) -> Html:
    """Return the roles."""
    rows = [
        (
            join([each.name, " ", badge("built in") if each.is_built_in else ""]),
            ", ".join(sorted(each.value for each in each.permissions)),
            ", ".join(each.patterns),
        )
        for each in found
    ]
    columns = [Column("Role"), Column("Permissions"), Column("On", is_wide_only=True)]
    return panel("Roles", table(columns, rows, caption="Roles"))


async def _create_key(page: Page, name: str) -> None:
    created: list[str] = []

    async def create() -> None:
        created.append((await page.client.security.create_api_key(name)).key)

    if await page.attempt(create):
        with ui.dialog() as dialog, ui.card().classes("form"):
            ui.label(f"The API key {name}. Store it now: it cannot be shown again.")
            ui.input("API key", value=created[0]).props("readonly outlined")
            ui.button("Done", on_click=dialog.close)
        dialog.open()


async def _revoke_key(page: Page, name: str) -> None:
    question = f"Revoke the API key {name}? Connections that use it are closed."
    if name and await page.confirm(question, "Revoke", typed=name):
        await page.attempt(lambda: page.client.security.revoke_api_key(name), "Revoked")


def _words(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]
