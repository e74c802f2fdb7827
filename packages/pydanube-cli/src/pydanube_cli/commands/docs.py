"""`danube docs`: prints the AsyncAPI document of a program's workers and producers."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pydanube.client.client import Client
from pydanube.client.workers.asyncapi import asyncapi_document
from pydanube.client.workers.workers import Workers
from pydanube.declarations.functions import NoSuchFunction, load_object
from pydanube.model.errors import InvalidRequest
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import print_line

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class DocumentFormat(StrEnum):
    """How a document is written."""

    YAML = "yaml"
    JSON = "json"


@command(
    app,
    "danube docs app:workers",
    "danube docs app:workers --title 'Order service' --program-version 1.4.0",
    "danube docs orders/app.py:workers --format json",
)
def docs(
    program: Annotated[str, typer.Argument(metavar="MODULE:NAME")],
    *,
    document_format: Annotated[
        DocumentFormat,
        typer.Option("--format", metavar="yaml|json", help="The output format."),
    ] = DocumentFormat.YAML,
    title: str | None = None,
    program_version: str = "0.1.0",
    host: str | None = None,
) -> None:
    """
    Print the AsyncAPI 3 document of a program: its topics, messages and schemas.

    The module is imported, and no broker is asked. Messages have the schemas of the
    annotations of workers, and of the producers that Workers.producer declares.

    Args:
        program: The workers, as MODULE:NAME or FILE.py:NAME: an object of the class
            pydanube.Workers, or a client.
        title (TEXT): The title of the document; by default the name of the module.
        program_version (TEXT): The version of the program.
        host (HOST:PORT): The address of a broker, for the list of servers.
    """
    workers = load_workers(program)
    document = asyncapi_document(
        workers,
        title=title or Path(program.rpartition(":")[0]).stem,
        version=program_version,
        host=host,
    )
    print_line(written(document, document_format).rstrip())


def load_workers(program: str) -> Workers:
    """
    Return the workers that *program* names.

    Raises:
        InvalidRequest: It cannot be imported, or names something else.
    """
    directory = Path.cwd()
    # As python -m does.
    sys.path.insert(0, str(directory))
    try:
        found = load_object(program, directory, "object")
    except NoSuchFunction as error:
        raise InvalidRequest(str(error)) from error
    finally:
        sys.path.remove(str(directory))
    if isinstance(found, Client):
        found = found.workers
    if not isinstance(found, Workers):
        raise InvalidRequest(
            f"{program} is {type(found).__name__}: name an object of the class "
            "pydanube.Workers, for example app:workers"
        )
    return found


def written(document: dict[str, Any], document_format: DocumentFormat) -> str:
    """Return *document* as text."""
    if document_format is DocumentFormat.JSON:
        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml  # noqa: PLC0415  # Takes 15 ms.

    text: str = yaml.safe_dump(
        json.loads(json.dumps(document)), sort_keys=False, allow_unicode=True
    )
    return text
