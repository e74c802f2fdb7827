"""`danube config`: manages contexts, the named addresses of brokers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pydanube.model.errors import InvalidRequest
from pydanube.model.redaction import without_password
from pydanube.model.url_options import UrlOptions, with_url_options
from pydanube_cli.invocation.completion import complete_contexts
from pydanube_cli.invocation.context_options import chosen_context
from pydanube_cli.invocation.contexts import (
    CONTEXT_VARIABLE,
    URL_VARIABLE,
    Context,
    contexts_path,
    load_contexts,
    save_contexts,
)
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import (
    Columns,
    Fields,
    OutputFormat,
    Result,
    Table,
    print_line,
    print_note,
)

app = command_group(
    "Manage contexts, the named addresses of brokers.",
    "danube config set prod --url danube://broker.example:6651",
    "danube config use prod",
    "danube --context prod topics list",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The context.",
        autocompletion=complete_contexts,
        show_default=False,
    ),
]


@command(app, "danube config list", name="list")
def list_() -> Result:
    """List the contexts, with the addresses of their brokers."""
    path = contexts_path(os.environ)
    contexts = load_contexts(path)
    listed = [
        _value(name, context, is_current=name == contexts.current)
        for name, context in sorted(contexts.by_name.items())
    ]
    if not listed:
        return Result([], f"{path} has no contexts; 'danube config set' adds one.")
    return Result(listed, Table.of(listed, LISTED))


@command(app, "danube config show", "danube config show prod")
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(autocompletion=complete_contexts)
    ] = None,
) -> Result:
    """
    Show a context, and where it is stored.

    Args:
        name (NAME): The context; by default the one that commands use.
    """
    path = contexts_path(os.environ)
    contexts = load_contexts(path)
    if name is None:
        name, _ = chosen_context(ctx)
    if name is None:
        raise InvalidRequest(
            "no context is chosen; name one, or choose one with 'danube config use'"
        )
    value = _value(name, contexts.find(name), is_current=name == contexts.current)
    value["file"] = str(path)
    return Result(value, Fields.of(value, FIELDS))


@command(
    app,
    "danube config set prod --url danube://broker.example:6651",
    "danube config set secure --url danubes://broker.example:6651 --ca-file ca.pem",
    "danube config set secure --api-key-file api-key.txt",
    "danube config set local --url danube://127.0.0.1:6651 --use",
    "danube config set prod --output-format json",
    name="set",
)
def set_(
    name: Name,
    *,
    url: str | None = None,
    ca_file: Path | None = None,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
    server_name: str | None = None,
    api_key_file: Path | None = None,
    token_file: Path | None = None,
    allow_plaintext_credentials: bool | None = None,
    stored_format: OutputFormat | None = None,
    use: bool = False,
) -> None:
    """
    Add a context, or change the settings of one.

    Args:
        url (URL): The address of the broker, as danube://HOST:PORT; a new context needs
            it. With TLS, it is danubes://HOST:PORT.
        ca_file (FILE): For a broker with TLS: the certificates of the authorities to
            trust, in PEM format; by default those of the operating system.
        certificate_file (FILE): The certificate of the client, if the broker asks for
            one.
        key_file (FILE): The key of that certificate.
        server_name (NAME): The name in the certificate of the broker, if it is not the
            host of the address.
        api_key_file (FILE): A file with the API key of the client. The context stores
            the name of the file, and commands read the key from it.
        token_file (FILE): A file with the token of the client, instead of an API key.
        allow_plaintext_credentials: Send the API key or the token to a broker on
            another machine without TLS, in a network that you trust.
        stored_format (--output-format table|json): The output format of commands that
            have the option --format, if it is not given.
        use: Make it the current context.
    """
    # Other commands of this group need no client.
    from pydanube.client.connections.credentials import credentials_of  # noqa: PLC0415
    from pydanube.client.connections.urls import (  # noqa: PLC0415
        options_of,
        split_url,
        tls_of,
    )

    path = contexts_path(os.environ)
    contexts = load_contexts(path)
    known = contexts.by_name.get(name)
    options = UrlOptions(
        ca_file=_absolute(ca_file),
        certificate_file=_absolute(certificate_file),
        key_file=_absolute(key_file),
        server_name=server_name,
        api_key_file=_absolute(api_key_file),
        token_file=_absolute(token_file),
        allow_plaintext_credentials=_text(allow_plaintext_credentials),
    )
    if url is None and known is None:
        raise InvalidRequest(f"there is no context {name!r}; add it with --url URL")
    if url is None and known is not None and options.given():
        url = known.url
    if url is not None:
        url = with_url_options(url, options)
        split_url(url)
        tls_of(url, UrlOptions())
        credentials_of("", "", options_of(url), {}, may_be_plain=False)
    elif stored_format is None and not use:
        raise InvalidRequest("nothing to change; use --url, --output-format or --use")
    given: dict[str, str] = {} if url is None else {"url": url}
    if stored_format is not None:
        given["output_format"] = stored_format.value
    context = Context(**given) if known is None else replace(known, **given)
    contexts = contexts.with_context(name, context)
    if use:
        contexts = contexts.using(name)
    save_contexts(path, contexts)
    print_line(f"The context {name} is {'added' if known is None else 'changed'}.")
    if contexts.current != name:
        print_line(f"'danube config use {name}' makes it the current context.")


def _text(flag: bool | None) -> str | None:
    """Return *flag* as the value of an option in a URL."""
    return None if flag is None else str(flag).lower()


def _absolute(path: Path | None) -> str | None:
    """Return *path* for commands in any directory."""
    return None if path is None else str(path.absolute())


@command(app, "danube config use prod")
def use(name: Name) -> None:
    """Make a context the current one, which commands use by default."""
    path = contexts_path(os.environ)
    contexts = load_contexts(path).using(name)
    save_contexts(path, contexts)
    shown = without_password(contexts.find(name).url)
    print_line(f"Commands use the context {name}, {shown}.")
    for variable in (URL_VARIABLE, CONTEXT_VARIABLE):
        if os.environ.get(variable):
            print_note(f"The variable {variable} is set, and overrides it.")


@command(app, "danube config delete prod")
def delete(name: Name) -> None:
    """Delete a context; its broker is not affected."""
    path = contexts_path(os.environ)
    contexts = load_contexts(path)
    save_contexts(path, contexts.without(name))
    print_line(f"The context {name} is deleted.")
    if contexts.current == name:
        print_line("It was the current context; commands now use the default address.")


def _value(name: str, context: Context, *, is_current: bool) -> dict[str, Any]:
    """Return a context for output, without its password."""
    return {
        "context": name,
        "current": is_current,
        "url": without_password(context.url),
        "output_format": context.output_format,
    }


LISTED: Columns = {
    "Context": "context",
    "Current": "current",
    "Address": "url",
    "Output format": "output_format",
}

FIELDS: Columns = {**LISTED, "File": "file"}
