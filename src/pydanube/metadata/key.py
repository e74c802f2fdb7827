"""
Typed paths: where a value lives in the metadata store, and how it is written.

Values are JSON, so that an operator can read a store with any tool, and decoded
into the type that the key names, so that a value of another shape is noticed at
construction and not three calls later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from pydanube.model.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """Where one value of type T lives."""

    path: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Prefix(Generic[T]):
    """
    Where all values of type T live whose paths begin with *path*.

    The path ends with a slash, so ``/topics/a/`` never covers ``/topics/ab``.
    """

    path: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]

    def __post_init__(self) -> None:
        assert self.path.endswith("/"), self.path

    def key(self, name: str) -> Key[T]:
        """The key of *name*, which may itself have several parts."""
        assert name, self.path
        assert not name.startswith("/"), name
        return Key(self.path + name, self.encode, self.decode)

    def within(self, name: str) -> Prefix[T]:
        """The narrower prefix of everything below *name*."""
        return Prefix(f"{self.path}{name}/", self.encode, self.decode)

    def name_of(self, path: str) -> str:
        """What follows the prefix in *path*, a path that it covers."""
        assert path.startswith(self.path), path
        return path[len(self.path) :]

    def __str__(self) -> str:
        return self.path


def key_of(path: str, kind: type[T]) -> Key[T]:
    """The key of a value of type *kind* at *path*."""
    return Key(path, *_json_of(kind))


def prefix_of(path: str, kind: type[T]) -> Prefix[T]:
    """The prefix *path*, below which every value is of type *kind*."""
    return Prefix(path, *_json_of(kind))


def _json_of(kind: type[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
    encoder = msgspec.json.Encoder()
    decoder = msgspec.json.Decoder(kind)

    def decode(value: bytes) -> T:
        try:
            return decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(
                f"the metadata store holds what is no {kind.__name__}: {error}"
            ) from error

    return encoder.encode, decode
