"""A sink that writes messages as documents to Elasticsearch or OpenSearch."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube_connect.connector import Sink
from pydanube_connect.option_problems import (
    duration_problems,
    file_problems,
    http_problems,
)
from pydanube_connect.pure.failures import (
    BatchRefused,
    ConnectorFailed,
    Rejected,
    Transient,
)
from pydanube_connect.sinks.bulk_documents import (
    InvalidDocument,
    action_of,
    result_of,
)
from pydanube_connect.sinks.templates import IdSource

if TYPE_CHECKING:
    import httpx  # An extra.

SHOWN_CHARACTERS_MAX = 300


class ElasticsearchOptions(Section, frozen=True, kw_only=True):
    """The options of ``ElasticsearchSink``."""

    url: Annotated[
        str, Meta(description="The server, such as `https://search.example.com:9200`.")
    ]
    index: Annotated[
        str,
        Meta(
            description="The index or the data stream, in which `{topic}` stands for "
            "the name of the message's topic without its namespace."
        ),
    ]
    id: Annotated[
        IdSource,
        Meta(
            description="The id of a document: with `message` each message is a "
            "document, with `key` a message replaces the one with its key, and an "
            "empty one deletes it."
        ),
    ] = IdSource.MESSAGE
    username: Annotated[str | None, Meta(description="The user name.")] = None
    password: Annotated[str | None, Meta(description="The password.")] = None
    api_key: Annotated[
        str | None, Meta(description="An API key, instead of a user name.")
    ] = None
    ca_file: Annotated[
        str | None,
        Meta(description="The authorities to trust; by default those of the system."),
    ] = None
    timeout: Annotated[str, Meta(description="The timeout of a request.")] = "30s"


class ElasticsearchSink(Sink):
    """
    Writes messages, JSON objects, as documents to Elasticsearch or OpenSearch.

    Delivery: at least once; a repeated message changes nothing.
    """

    Options = ElasticsearchOptions
    extra = "connect"

    def __init__(self, options: ElasticsearchOptions) -> None:
        super().__init__(options)
        self._http: httpx.AsyncClient
        self._resources = AsyncExitStack()

    @classmethod
    def problems(cls, options: ElasticsearchOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = http_problems(options.url)
        if not options.index:
            found["index"] = "must not be empty"
        if (options.username is None) is not (options.password is None):
            found["username"] = "goes with a password"
        if options.api_key is not None and options.username is not None:
            found["api_key"] = "excludes a username"
        found |= file_problems(options, "ca_file")
        return found | duration_problems(options, "timeout")

    async def __aenter__(self) -> Self:
        import httpx  # noqa: PLC0415

        options: ElasticsearchOptions = self.options
        headers = {"content-type": "application/x-ndjson"}
        if options.api_key is not None:
            headers["authorization"] = f"ApiKey {options.api_key}"
        auth = None
        if options.username is not None and options.password is not None:
            auth = httpx.BasicAuth(options.username, options.password)
        client = httpx.AsyncClient(
            base_url=options.url,
            timeout=parse_duration(options.timeout),
            headers=headers,
            auth=auth,
            verify=ssl.create_default_context(cafile=options.ca_file),
        )
        self._http = await self._resources.enter_async_context(client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    async def check(self) -> None:
        """Ask the server who it is."""
        await self._ask("GET", "/")

    async def write(self, messages: Sequence[Message]) -> None:
        """Write *messages* with one request; see ``Sink.write``."""
        options: ElasticsearchOptions = self.options
        rejected: dict[int, str] = {}
        actions: dict[int, bytes] = {}
        for number, message in enumerate(messages):
            try:
                actions[number] = action_of(message, options.index, options.id)
            except InvalidDocument as error:
                rejected[number] = str(error)
        if actions:
            answer = await self._ask("POST", "/_bulk", b"".join(actions.values()))
            try:
                result = result_of(msgspec.json.decode(answer)["items"])
            except (msgspec.DecodeError, TypeError, KeyError, ValueError) as error:
                raise ConnectorFailed(
                    f"{options.url} does not answer as Elasticsearch does"
                ) from error
            if result.failure is not None:
                raise ConnectorFailed(result.failure)
            if result.is_busy is not None:
                raise Transient(result.is_busy)
            numbers = list(actions)
            rejected |= {numbers[at]: text for at, text in result.rejected.items()}
        if rejected:
            raise Rejected(rejected)

    async def _ask(self, method: str, path: str, content: bytes = b"") -> bytes:
        """Send a request, and return the body of its answer."""
        import httpx  # noqa: PLC0415

        try:
            response = await self._http.request(method, path, content=content)
        except httpx.TransportError as error:
            raise Transient(f"no answer: {type(error).__name__}: {error}") from error
        if response.is_success:
            return response.content
        reason = _summary(response)
        if response.status_code in {408, 429} or response.status_code >= 500:
            raise Transient(reason)
        if response.status_code == 413:
            raise BatchRefused(f"{reason}; lower 'bytes' of 'batch'")
        raise ConnectorFailed(reason)


def _summary(response: Any) -> str:
    text = " ".join(response.text.split())[:SHOWN_CHARACTERS_MAX]
    return f"the server answers {response.status_code}: {text or 'no body'}"
