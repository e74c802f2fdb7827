"""The options with which connectors reach servers: a user, and TLS."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pydanube.declarations.pure.sections import Section
from pydanube_connect.option_problems import file_problems


class ServerAccess(Section, frozen=True, kw_only=True):
    """The options that connectors for servers share."""

    username: Annotated[str | None, Meta(description="The user name.")] = None
    password: Annotated[str | None, Meta(description="The password.")] = None
    tls: Annotated[bool, Meta(description="Whether to use TLS.")] = False
    ca_file: Annotated[
        str | None,
        Meta(description="The authorities to trust; by default those of the system."),
    ] = None
    certificate_file: Annotated[
        str | None, Meta(description="The client's certificate, with its `key_file`.")
    ] = None
    key_file: Annotated[str | None, Meta(description="The key of the client.")] = None


def access_problems(options: ServerAccess) -> dict[str, str]:
    """Return the files that cannot be read or need TLS, by option."""
    names = ("ca_file", "certificate_file", "key_file")
    found = file_problems(options, *names)
    for name in names:
        if getattr(options, name) and not options.tls:
            found[name] = "needs 'tls: true'"
    if (options.certificate_file is None) != (options.key_file is None):
        found.setdefault("key_file", "goes with a certificate_file")
    return found
