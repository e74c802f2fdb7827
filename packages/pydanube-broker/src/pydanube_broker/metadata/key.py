"""
Typed keys: the path of a value in the metadata store, and its encoding.

Values are JSON, so operators can read a store with any tool.  They are decoded into
the type of their key, so a value of another type is detected when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from pydanube.model.errors import Corrupt, InvalidName
from pydanube.model.lazy_dataclasses import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """The path of one value of type T."""

    path: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Prefix(Generic[T]):
    """
    The paths that begin with *path*, whose values are all of type T.

    *path* ends with a slash, so ``/topics/a/`` does not include ``/topics/ab``.
    """

    path: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    parse_name: Callable[[str], object] = str
    """It raises ValueError or InvalidName for what is no name of a value."""

    def __post_init__(self) -> None:
        assert self.path.endswith("/"), self.path

    def key(self, *parts: str | int) -> Key[T]:
        """Return the key with *parts*, joined by slashes, after the prefix."""
        name = "/".join(map(str, parts))
        assert name, self.path
        assert not name.startswith("/"), name
        return Key(self.path + name, self.encode, self.decode)

    def within(self, part: str | int) -> Prefix[T]:
        """Return the prefix of all paths below *part*."""
        return Prefix(f"{self.path}{part}/", self.encode, self.decode)

    def has_name(self, path: str) -> bool:
        """Return whether *path* can be that of a value."""
        try:
            self.parse_name(self.name_of(path))
        except (InvalidName, ValueError):
            return False
        return True

    def name_of(self, path: str) -> str:
        """Return the part of *path* after the prefix."""
        assert path.startswith(self.path), path
        return path[len(self.path) :]


def key_of(path: str, kind: type[T]) -> Key[T]:
    """Return the key of a value of type *kind* at *path*."""
    return Key(path, *_json_of(kind))


def prefix_of(
    path: str, kind: type[T], parse_name: Callable[[str], object] = str
) -> Prefix[T]:
    """Return the prefix *path*, whose values are all of type *kind*."""
    return Prefix(path, *_json_of(kind), parse_name)


def _json_of(kind: type[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
    encoder = msgspec.json.Encoder()
    decoder = msgspec.json.Decoder(kind)

    def decode(value: bytes) -> T:
        try:
            return decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"it is an invalid {kind.__name__}: {error}") from error

    return encoder.encode, decode
