"""How the commands of `danube-admin` name a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="/NAMESPACE/TOPIC, or TOPIC with --namespace."
    ),
]

InNamespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Of the topic.")
]


def topic_name(topic: str, namespace: str | None) -> str:
    """
    The topic as ``/NAMESPACE/TOPIC``, of which slash and namespace may be missing.

    Raises:
        InvalidRequest: There is no namespace, or there are two.
        InvalidName: It is not a name.
    """
    text = topic.removeprefix("/")
    own, slash, _ = text.partition("/")
    if not slash:
        if namespace is None:
            raise InvalidRequest(
                f"{topic!r} lacks its namespace: say /NAMESPACE/{text}, or --namespace"
            )
        return str(TopicName.parse(f"/{namespace}/{text}"))
    if namespace not in {None, own}:
        raise InvalidRequest(f"{topic!r} is not in the namespace {namespace}")
    return str(TopicName.parse(f"/{text}"))
