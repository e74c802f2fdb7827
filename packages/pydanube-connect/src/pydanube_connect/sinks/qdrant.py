"""A sink that writes messages as points with vectors to Qdrant."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Self

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.functions import load_function
from pydanube.declarations.pure.sections import Section
from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import parse_path
from pydanube_connect.connector import Sink
from pydanube_connect.option_problems import http_problems
from pydanube_connect.pure.failures import (
    BatchRefused,
    ConnectorFailed,
    Rejected,
    Transient,
)
from pydanube_connect.sinks.embeddings import (
    TEXTS_MAX,
    Embedder,
    Embedding,
    InvalidMessage,
    Vector,
    content_of,
    text_of,
    vector_in,
)
from pydanube_connect.sinks.templates import IdSource

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient  # An extra.

NAMESPACE = uuid.UUID("5d1f0f6e-2f6a-5c3e-9d0b-6f2d0c3a7b11")
"""The namespace of the UUIDs that points get."""
INTEGER_DIGITS_MAX = 19
OF_MESSAGE = frozenset({400, 413, 422})
"""The statuses of requests that a message may be the reason for."""
_SHOWN_CHARACTERS_MAX = 300


class Distance(Enum):
    """The distance of the vectors of a collection, as Qdrant names it."""

    COSINE = "Cosine"
    DOT = "Dot"
    EUCLID = "Euclid"
    MANHATTAN = "Manhattan"


class QdrantOptions(Section, frozen=True, kw_only=True):
    """The options of ``QdrantSink``."""

    url: Annotated[
        str | None, Meta(description="The server, such as `http://127.0.0.1:6333`.")
    ] = None
    path: Annotated[
        str | None,
        Meta(description="A directory of Qdrant's local mode, instead of a server."),
    ] = None
    collection: Annotated[
        str, Meta(description="The collection, which is created if it does not exist.")
    ]
    distance: Annotated[
        Distance, Meta(description="The distance of a collection that is created.")
    ] = Distance.COSINE
    id: Annotated[
        IdSource,
        Meta(
            description="The id of a point: with `message` each message is a point, "
            "with `key` a message replaces the one with its key, and an empty one "
            "deletes it."
        ),
    ] = IdSource.MESSAGE
    vector: Annotated[
        str | None, Meta(description="The field with the vector, if there is one.")
    ] = None
    embed: Annotated[
        Embedding | None,
        Meta(description="A function that returns the vectors, instead of `vector`."),
    ] = None
    api_key: Annotated[str | None, Meta(description="The API key.")] = None


class QdrantSink(Sink):
    """
    Writes messages as points with vectors to a collection of Qdrant.

    Delivery: at least once; a repeated message changes nothing.
    """

    Options = QdrantOptions
    extra = "qdrant"

    def __init__(self, options: QdrantOptions) -> None:
        super().__init__(options)
        self._qdrant: AsyncQdrantClient | None = None
        self._embedder: Embedder | None = None
        # The number of dimensions, when the collection is known.
        self._size: int | None = None

    @classmethod
    def problems(cls, options: QdrantOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        if (options.url is None) is (options.path is None):
            found["url"] = "set either 'url' or 'path'"
        elif options.url is not None:
            found |= http_problems(options.url)
        if not options.collection:
            found["collection"] = "must not be empty"
        if (options.vector is None) is (options.embed is None):
            found["vector"] = "set either 'vector' or 'embed'"
        if options.embed is not None and not 1 <= options.embed.batch <= TEXTS_MAX:
            found["embed"] = f"'batch' must be 1 to {TEXTS_MAX:,}"
        fields = {"vector": options.vector}
        if options.embed is not None:
            fields["embed"] = options.embed.field
        for name, field in fields.items():
            try:
                parse_path(field or "x")
            except InvalidRequest as error:
                found[name] = str(error)
        return found

    @classmethod
    def functions(cls, options: QdrantOptions) -> dict[str, str]:
        """Return the function that returns vectors."""
        return {} if options.embed is None else {"embed": options.embed.function}

    async def __aenter__(self) -> Self:
        from qdrant_client import AsyncQdrantClient  # noqa: PLC0415

        options: QdrantOptions = self.options
        if options.embed is not None:
            name = options.embed.function
            function = load_function(name, self.directory)
            self._embedder = Embedder(function, name, options.embed.batch)
        path = None if options.path is None else str(self.directory / options.path)
        with _translated():
            self._qdrant = AsyncQdrantClient(
                url=options.url,
                path=path,
                api_key=options.api_key,
                check_compatibility=False,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._qdrant is not None:
            await self._qdrant.close()

    async def check(self) -> None:
        """Look for the collection."""
        await self._find_collection()

    async def write(self, messages: Sequence[Message]) -> None:
        """Write or delete the points of *messages*; see ``Sink.write``."""
        from qdrant_client import models  # noqa: PLC0415

        rejected: dict[int, str] = {}
        # The last message of an id counts; None deletes the point.
        chosen: dict[int | str, int | None] = {}
        ids: dict[int, int | str] = {}
        for number, message in enumerate(messages):
            try:
                ids[number] = _id_of(message, self.options.id)
            except InvalidMessage as error:
                rejected[number] = str(error)
        contents = self._contents_of(messages, ids, rejected)
        vectors = await self._vectors_of(messages, contents, rejected)
        if self._size is None and vectors:
            await self._open_collection(len(next(iter(vectors.values()))))
        for number, point_id in ids.items():
            vector = vectors.get(number)
            if vector is not None and len(vector) != self._size:
                rejected[number] = (
                    f"the vector has {len(vector)} dimensions, and the collection "
                    f"{self._size}"
                )
            elif vector is not None:
                chosen[point_id] = number
            elif self._deletes(messages[number]):
                chosen[point_id] = None
        points = [
            models.PointStruct(
                id=point_id, vector=vectors[number], payload=contents[number]
            )
            for point_id, number in chosen.items()
            if number is not None
        ]
        deleted = [point_id for point_id, number in chosen.items() if number is None]
        try:
            await self._write(points, deleted)
        except BaseException:
            # The collection may have been created anew.
            self._size = None
            raise
        if rejected:
            raise Rejected(rejected)

    def _deletes(self, message: Message) -> bool:
        return self.options.id is IdSource.KEY and not message.payload

    def _contents_of(
        self,
        messages: Sequence[Message],
        numbers: Iterable[int],
        rejected: dict[int, str],
    ) -> dict[int, dict[str, Any]]:
        """Return the contents of messages that have a point."""
        found = {}
        for number in numbers:
            if not self._deletes(messages[number]):
                try:
                    found[number] = content_of(messages[number])
                except InvalidMessage as error:
                    rejected[number] = str(error)
        return found

    async def _vectors_of(
        self,
        messages: Sequence[Message],
        contents: dict[int, dict[str, Any]],
        rejected: dict[int, str],
    ) -> dict[int, Vector]:
        options: QdrantOptions = self.options
        found: dict[int, Vector] = {}
        texts: dict[int, str] = {}
        for number, content in contents.items():
            try:
                if options.vector is not None:
                    found[number] = vector_in(content, options.vector)
                else:
                    assert options.embed is not None
                    field = options.embed.field
                    texts[number] = text_of(messages[number], content, field)
            except InvalidMessage as error:
                rejected[number] = str(error)
        if self._embedder is not None:
            vectors = await self._embedder.vectors(list(texts.values()))
            for number, vector in zip(texts, vectors, strict=True):
                if isinstance(vector, InvalidMessage):
                    rejected[number] = str(vector)
                else:
                    found[number] = vector
        return found

    async def _find_collection(self) -> int | None:
        """Return the number of dimensions of the collection; None: there is none."""
        from qdrant_client import models  # noqa: PLC0415

        assert self._qdrant is not None
        name = self.options.collection
        with _translated():
            if not await self._qdrant.collection_exists(name):
                return None
            found = (await self._qdrant.get_collection(name)).config.params.vectors
        if not isinstance(found, models.VectorParams):
            raise ConnectorFailed(f"the collection {name} has named vectors")
        size: int = found.size
        return size

    async def _open_collection(self, size: int) -> None:
        """Find the collection, or create it with *size* dimensions."""
        from qdrant_client import models  # noqa: PLC0415

        assert self._qdrant is not None
        self._size = await self._find_collection()
        if self._size is None:
            distance = models.Distance(self.options.distance.value)
            with _translated():
                await self._qdrant.create_collection(
                    self.options.collection,
                    vectors_config=models.VectorParams(size=size, distance=distance),
                )
            self._size = size

    async def _write(self, points: list[Any], deleted: list[int | str]) -> None:
        from qdrant_client import models  # noqa: PLC0415

        assert self._qdrant is not None
        name = self.options.collection
        with _translated():
            if points:
                await self._qdrant.upsert(name, points, wait=True)
            if deleted and await self._qdrant.collection_exists(name):
                selected = models.PointIdsList(points=list(deleted))
                await self._qdrant.delete(name, selected, wait=True)


def _id_of(message: Message, point_id: IdSource) -> int | str:
    """Return the id of the point: a number, or a UUID."""
    if point_id is IdSource.MESSAGE:
        return str(uuid.uuid5(NAMESPACE, f"{message.topic}:{message.offset}"))
    try:
        key = (message.key_bytes or b"").decode()
    except UnicodeDecodeError:
        raise InvalidMessage("the key is not UTF-8") from None
    if not key:
        raise InvalidMessage("the message has no key")
    if key.isascii() and key.isdecimal() and len(key) <= INTEGER_DIGITS_MAX:
        return int(key)
    try:
        return str(uuid.UUID(key))
    except ValueError:
        return str(uuid.uuid5(NAMESPACE, key))


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of Qdrant's client as those of connectors."""
    from qdrant_client.http.exceptions import (  # noqa: PLC0415
        ResponseHandlingException,
        UnexpectedResponse,
    )

    try:
        yield
    except ResponseHandlingException as error:
        raise Transient(f"no answer: {error}") from error
    except UnexpectedResponse as error:
        text = " ".join(str(error).split())[:_SHOWN_CHARACTERS_MAX]
        status = error.status_code or 0
        if status in {408, 429} or status >= 500:
            raise Transient(text) from error
        if status in OF_MESSAGE:
            raise BatchRefused(text) from error
        raise ConnectorFailed(text) from error
