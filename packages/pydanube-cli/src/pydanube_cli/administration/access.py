"""The commands of ``danube security`` about roles, bindings and identities."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.model.errors import RoleNotFound
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube_cli.invocation.declaration import Connect, command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table

NOT_ENFORCED = (
    "the broker does not enforce its policy (security.enabled): every client may do "
    "everything"
)

roles = command_group(
    """
    Define roles: permissions on resources.

    Permissions are describe, produce, consume, create, manage, schema_read,
    schema_write, cluster_admin and grant. Resources are patterns: /shop/orders,
    /shop/*, /shop (the namespace itself), subject:orders, cluster, or * for everything.
    """,
    "danube security roles list",
    "danube security roles set publisher --allow produce --allow schema_read",
    "danube security roles show publisher",
    "danube security roles delete publisher",
)

bindings = command_group(
    """
    Give roles to members, on some resources.

    Members are user:NAME, group:NAME and anonymous.
    """,
    "danube security bindings add user:billing consumer --on '/shop/*'",
    "danube security bindings list",
    "danube security bindings remove d3f0c2a49b11",
)

RoleName = Annotated[
    str, typer.Argument(metavar="ROLE", help="The role's name.", show_default=False)
]
Member = Annotated[
    str,
    typer.Argument(
        metavar="PRINCIPAL",
        help="user:NAME, group:NAME or anonymous.",
        show_default=False,
    ),
]


def _permissions_of(role: Role) -> str:
    return ", ".join(sorted(each.value for each in role.permissions))


ROLE: Columns = {
    "Role": "name",
    "Permissions": _permissions_of,
    "On": lambda role: ", ".join(role.patterns),
    "Built in": lambda role: "yes" if role.is_built_in else "",
}
BINDING: Columns = {
    "Id": "id",
    "Member": "member",
    "Roles": lambda binding: ", ".join(binding.roles),
    "On": lambda binding: ", ".join(binding.patterns),
}


def _role_value(role: Role) -> dict[str, object]:
    return {
        "name": role.name,
        "permissions": sorted(each.value for each in role.permissions),
        "patterns": list(role.patterns),
        "is_built_in": role.is_built_in,
    }


def _binding_value(binding: Binding) -> dict[str, object]:
    return {
        "id": binding.id,
        "member": binding.member,
        "roles": list(binding.roles),
        "patterns": list(binding.patterns),
    }


@command(roles, "danube security roles list", name="list")
def list_roles(connect: Connect) -> Result:
    """List the roles that you may know: your own, or all if you may grant."""
    with connect() as client:
        found = client.security.roles()
    return Result([_role_value(each) for each in found], Table.of(found, ROLE))


@command(roles, "danube security roles show producer", name="show")
def show_role(connect: Connect, role: RoleName) -> Result:
    """Show what a role permits."""
    with connect() as client:
        found = [each for each in client.security.roles() if each.name == role]
    if not found:
        raise RoleNotFound(f"there is no role {role!r} that you may know")
    return Result(_role_value(found[0]), Fields.of(found[0], ROLE))


@command(
    roles,
    "danube security roles set publisher --allow produce --allow schema_read",
    "danube security roles set shop-admin --allow manage --on /shop --on '/shop/*'",
    name="set",
)
def set_role(
    connect: Connect,
    role: RoleName,
    *,
    allow: list[str],
    on: list[str] | None = None,
) -> Result:
    """
    Define a role, or change what it permits.

    Clients can define only roles whose permissions they hold.

    Args:
        allow: A permission; repeat it for more.
        on: A resource, or a pattern of resources; repeat it for more. By default
            everything, which bindings narrow.
    """
    patterns = on or ["*"]
    with connect() as client:
        client.security.set_role(role, allow, patterns)
    value = {"name": role, "permissions": sorted(allow), "patterns": patterns}
    return Result(value, f"the role {role} permits {', '.join(sorted(allow))}")


@command(roles, "danube security roles delete publisher", name="delete")
def delete_role(connect: Connect, role: RoleName) -> Result:
    """Delete a role that no binding has."""
    with connect() as client:
        client.security.delete_role(role)
    return Result({"name": role}, f"deleted the role {role}")


@command(bindings, "danube security bindings list", name="list")
def list_bindings(connect: Connect) -> Result:
    """List your own bindings, and those that you could remove."""
    with connect() as client:
        found = client.security.bindings()
    return Result([_binding_value(each) for each in found], Table.of(found, BINDING))


@command(
    bindings,
    "danube security bindings add user:billing consumer --on '/shop/*'",
    "danube security bindings add group:ops admin --on '*'",
    name="add",
)
def add_binding(
    connect: Connect,
    principal: Member,
    role: Annotated[
        list[str],
        typer.Argument(metavar="ROLE...", help="The roles.", show_default=False),
    ],
    *,
    on: list[str],
    binding_id: str = "",
) -> Result:
    """
    Give roles to a user, a group, or clients without credentials.

    Clients can give only permissions that they hold.

    Args:
        on: A resource, or a pattern of resources, on which the roles apply; repeat it
            for more.
        binding_id (--id ID): A name for the binding; a binding that has it is replaced.
    """
    with connect() as client:
        given = client.security.add_binding(principal, role, on, binding_id=binding_id)
    value = {"id": given, "member": principal, "roles": role, "patterns": on}
    text = f"{principal} has {', '.join(role)} on {', '.join(on)} (binding {given})"
    return Result(value, text)


@command(bindings, "danube security bindings remove d3f0c2a49b11", name="remove")
def remove_binding(
    connect: Connect,
    binding: Annotated[
        str, typer.Argument(metavar="ID", help="Its id.", show_default=False)
    ],
) -> Result:
    """Take the roles of a binding away."""
    with connect() as client:
        client.security.remove_binding(binding)
    return Result({"id": binding}, f"removed the binding {binding}")


def add_commands(app: typer.Typer) -> None:
    """Add the commands about the caller and its permissions to ``danube security``."""

    @command(app, "danube security whoami", name="whoami")
    def who_am_i(connect: Connect) -> Result:
        """Show the identity that the broker has verified."""
        with connect() as client:
            found = client.security.who_am_i()
        facts = Fields(
            [
                ("Name", found.name),
                ("Authenticated by", found.method),
                ("Groups", ", ".join(found.groups)),
                ("Superuser", "yes" if found.is_superuser else "no"),
            ]
        )
        return Result(found, facts, *([] if found.is_enforced else [NOT_ENFORCED]))

    @command(
        app,
        "danube security release-query nightly-orders",
        "danube security release-query transaction:billing",
        name="release-query",
    )
    def release_query(
        connect: Connect,
        query: Annotated[
            str,
            typer.Argument(
                help="The id or appId of a stream of Spark, the name of a staged query "
                "or of a connector, or transaction:NAME.",
                show_default=False,
            ),
        ],
    ) -> Result:
        """
        Let another principal use a staged query or the name of transactions.

        Each belongs to the principal that used it first. The next principal that uses
        it is the owner; the number of the last committed version stays.
        """
        with connect() as client:
            client.security.release_query(query)
        return Result({"query": query}, f"the query {query} has no owner now")

    @command(
        app,
        "danube security can user:billing consume /shop/orders",
        "danube security can group:ops cluster_admin cluster",
        name="can",
    )
    def can(
        connect: Connect,
        principal: Member,
        permission: Annotated[
            str,
            typer.Argument(
                help=f"One of {', '.join(each.value for each in Permission)}.",
                show_default=False,
            ),
        ],
        resource: Annotated[
            str,
            typer.Argument(
                help="For example /shop/orders, /shop, subject:orders or cluster.",
                show_default=False,
            ),
        ],
    ) -> Result:
        """
        Show whether a principal may do something, and the rule that decides.

        The exit code is 1 if it may not. The groups of a user are in the user's
        credentials, which the broker does not have, so check the groups as well.
        """
        with connect() as client:
            found = client.security.check_access(permission, resource, member=principal)
            is_enforced = client.security.who_am_i().is_enforced
        value = {
            "allowed": found.allowed,
            "rule": found.rule,
            "is_enforced": is_enforced,
        }
        return Result(
            value,
            f"{'yes' if found.allowed else 'no'}: {found.rule}",
            *([] if is_enforced else [NOT_ENFORCED]),
            exit_code=0 if found.allowed else 1,
        )
