"""What an application says about the values in its messages."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from pydanube.model.errors import InvalidSchema
from pydanube.model.extras import require
from pydanube.model.schemas import SchemaType

if TYPE_CHECKING:
    from types import ModuleType

    from pydanube.schemas.parsed_schema import ParsedSchema

# ruff: noqa: PLC0415  # What knows the languages is needed only by who has schemas.

T = TypeVar("T")
Class: TypeAlias = type[T]
"""Inside of Schema, ``type`` is its field."""

_PRIMITIVES = {
    str: (SchemaType.STRING, ""),
    bytes: (SchemaType.BYTES, ""),
    int: (SchemaType.NUMBER, "int64"),
    float: (SchemaType.NUMBER, "float64"),
}


@dataclass(frozen=True, slots=True)
class Schema(Generic[T]):
    """
    A schema, and the Python class that its values are of, if there is one.

    It is a value on the client's side: nothing is registered by making one.
    """

    type: SchemaType
    definition: str = ""
    """The text in the schema's language; empty for most primitive types."""
    message: str | None = None
    """Protobuf only: which message of the text a payload is; None: the first one."""
    cls: Class[T] | None = None
    """What values are built as; None: plain values, lists and dicts."""

    @classmethod
    def of(cls, kind: Class[T] | Schema[T]) -> Schema[T]:
        """
        The schema of a class, whatever kind of class it is.

        ``str``, ``bytes``, ``int`` and ``float`` are primitive types, a class that
        the Protobuf compiler has made is Protobuf, and all others are JSON.

        Raises:
            InvalidSchema: No schema can be made of it.
        """
        if isinstance(kind, Schema):
            return kind
        if kind in _PRIMITIVES:
            type_, definition = _PRIMITIVES[kind]
            return cls(type_, definition, cls=kind)
        if _typed().is_protobuf(kind):
            return cls.from_protobuf(kind)
        return cls._from_class(kind, "json_schema")

    @classmethod
    def from_dataclass(
        cls,
        kind: Class[T],
        *,
        type: str = "json_schema",  # noqa: A002  # It is what users call it.
        namespace: str = "",
    ) -> Schema[T]:
        """
        The schema of a dataclass, by the annotations of its fields.

        Args:
            kind: The class; nested ones become schemas by name.
            type: ``"json_schema"`` or ``"avro"``.
            namespace: Of the record's name in Avro, for example ``"com.example"``.

        Raises:
            InvalidSchema: A field is of a type that the language does not have.
        """
        if not is_dataclass(kind):
            raise InvalidSchema(f"{kind!r:.80} is no dataclass")
        return cls._from_class(kind, type, namespace)

    @classmethod
    def from_typed_dict(
        cls,
        kind: Class[T],
        *,
        type: str = "json_schema",  # noqa: A002
        namespace: str = "",
    ) -> Schema[T]:
        """
        The schema of a ``TypedDict``; the values are dicts.

        Args, Raises: As ``from_dataclass``.
        """
        if not hasattr(kind, "__required_keys__"):
            raise InvalidSchema(f"{kind!r:.80} is no TypedDict")
        return cls._from_class(kind, type, namespace)

    @classmethod
    def from_pydantic(cls, kind: Class[T]) -> Schema[T]:
        """
        The JSON Schema of a pydantic model.

        Raises:
            InvalidSchema: It is none.
        """
        if not _typed().is_pydantic(kind):
            raise InvalidSchema(f"{kind!r:.80} is no pydantic model")
        return cls._from_class(kind, "json_schema")

    @classmethod
    def from_protobuf(cls, kind: Class[T]) -> Schema[T]:
        """
        The schema of a class that the Protobuf compiler has made.

        Raises:
            InvalidSchema: It is none, or its file imports others than the
                well-known types.
        """
        if not _typed().is_protobuf(kind):
            raise InvalidSchema(f"{kind!r:.80} was not made by the Protobuf compiler")
        from pydanube.schemas.protobuf.source import source_of

        descriptor: Any = kind.DESCRIPTOR  # type: ignore[attr-defined]
        return cls(
            SchemaType.PROTOBUF,
            source_of(descriptor.file),
            message=descriptor.full_name,
            cls=kind,
        )

    @staticmethod
    def json_schema(text: str) -> Schema[Any]:
        """The JSON Schema that *text* is; the values are what JSON has."""
        return Schema(SchemaType.JSON_SCHEMA, text)

    @staticmethod
    def avro(text: str) -> Schema[Any]:
        """The Avro schema that *text* is; records are dicts."""
        return Schema(SchemaType.AVRO, text)

    @staticmethod
    def protobuf(text: str, *, message: str | None = None) -> Schema[Any]:
        """One *message* of a ``.proto`` text, or the first; the values are dicts."""
        return Schema(SchemaType.PROTOBUF, text, message=message)

    @staticmethod
    def string() -> Schema[str]:
        """UTF-8 text."""
        return Schema(SchemaType.STRING, cls=str)

    @staticmethod
    def number(kind: str = "int64") -> Schema[Any]:
        """Eight bytes that are an ``"int64"`` or a ``"float64"``."""
        return Schema(SchemaType.NUMBER, kind)

    @staticmethod
    def bytes() -> Schema[Any]:
        """Anything; the values are the payloads."""
        return Schema(SchemaType.BYTES)

    def parse(self) -> ParsedSchema:
        """
        The schema as what validates, decodes and compares.

        It may take a while, so not on an event loop.

        Raises:
            InvalidSchema: The definition is not well-formed.
        """
        from pydanube.schemas.parsing import parse_schema

        return parse_schema(self.type, self.definition, message=self.message)

    @classmethod
    def _from_class(
        cls, kind: Class[T], language: str, namespace: str = ""
    ) -> Schema[T]:
        typed = _typed()
        type_ = SchemaType.parse(language)
        if type_ is SchemaType.JSON_SCHEMA:
            return cls(type_, typed.json_schema_of(kind), cls=kind)
        if type_ is SchemaType.AVRO:
            definition = typed.avro_schema_of(kind, namespace=namespace)
            made = cls(type_, definition, cls=kind)
            # Unions that Avro does not allow, and defaults that fit no branch.
            made.parse()
            return made
        raise InvalidSchema(f"a class becomes a json_schema or avro, not {language}")


def _typed() -> ModuleType:
    """Return ``pydanube.schemas.class_schemas``; its packages are optional."""
    require("schemas", "a schema that is made from a class")
    from pydanube.schemas import class_schemas

    return class_schemas
