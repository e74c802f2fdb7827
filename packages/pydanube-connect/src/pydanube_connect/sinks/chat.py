"""A sink that posts messages to a channel of Slack, Teams, Discord or another chat."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.sinks.http import HttpOptions, HttpSink
from pydanube_connect.sinks.pure.chat_bodies import (
    ChatService,
    body_for,
    filled,
    structure_problem,
)
from pydanube_connect.sinks.pure.message_templates import template_problem


class ChatOptions(HttpOptions, frozen=True, kw_only=True):
    """The options of ``ChatSink``."""

    url: Annotated[
        str, Meta(description="The URL of the incoming webhook, which is a secret.")
    ]
    service: Annotated[
        ChatService, Meta(description="The chat, which says what a body looks like.")
    ] = ChatService.SLACK
    text: Annotated[
        str,
        Meta(
            description="The text, in which `{topic}`, `{key}`, `{offset}`, "
            "`{payload}`, `{time}` and `{value.FIELD}` stand for parts of the message."
        ),
    ] = "{payload}"
    body: Annotated[
        dict[str, Any],
        Meta(
            description="The JSON of a body, instead of `service` and `text`; its "
            "texts may have the same places."
        ),
    ] = {}


class ChatSink(HttpSink):
    """
    Posts each message to a channel of Slack, Teams, Discord or another chat.

    Delivery: at least once, in order.
    """

    Options = ChatOptions

    @classmethod
    def problems(cls, options: Any) -> dict[str, str]:
        """Return the options that are malformed."""
        found = super().problems(options)
        for name, problem in (
            ("text", template_problem(options.text)),
            ("body", structure_problem(options.body)),
        ):
            if problem is not None:
                found[name] = problem
        return found

    async def check(self) -> None:
        """Connect, and ask Discord for the webhook; others cannot be asked."""
        import httpx  # noqa: PLC0415

        options: ChatOptions = self.options
        is_discord = options.service is ChatService.DISCORD and not options.body
        try:
            response = await self.http.request(
                "GET" if is_discord else "OPTIONS", options.url
            )
        except httpx.TransportError as error:
            raise Transient(f"no answer: {type(error).__name__}: {error}") from error
        if is_discord and response.status_code in {401, 403, 404}:
            raise ConnectorFailed(
                f"Discord answers {response.status_code}: it has no such webhook"
            )

    def body_of(self, message: Message) -> bytes:
        """Return the body that the chat wants for *message*."""
        options: ChatOptions = self.options
        if options.body:
            return msgspec.json.encode(filled(options.body, message))
        return msgspec.json.encode(body_for(options.service, options.text, message))
