"""
One message alone, in the bytes that Arrow would write, without asking Arrow.

Arrow is made for batches: building, checking and reading a batch of one costs it
some twenty microseconds each in a process that has just been woken, three times
on a message's way.  The body of a single message that has nothing but a payload
is always the same 160 bytes with two lengths in them, then the two offsets, then
the payload::

      0 encapsulated metadata; at 40 the length of what follows 160, at 128 of
        the payload
    160 i32 0, i32 length of the payload
    168 payload, padded with zeros to a multiple of 8

The 160 bytes are taken from Arrow itself when this module is imported.  A body
that differs from them in any way is not wrong: it is Arrow's to read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pydanube.model.batch import batch_of

if TYPE_CHECKING:
    from pydanube.wire.batches import Buffer

_HEAD_BYTES = 160
_BODY_LENGTH_AT = 40
_DATA_LENGTH_AT = 128
_OFFSETS_BYTES = 8
_I64 = struct.Struct("<q")
_OFFSETS = struct.Struct("<ii")
SINGLE_BYTES_MAX = 1024 * 1024
"""A longer payload takes so long anyway that Arrow does not matter."""

_HEAD = batch_of([b""]).serialize().to_pybytes()[:_HEAD_BYTES]
# What no length stands in.
_FIXED = (
    slice(0, _BODY_LENGTH_AT),
    slice(_BODY_LENGTH_AT + 8, _DATA_LENGTH_AT),
    slice(_DATA_LENGTH_AT + 8, _HEAD_BYTES),
)
_FIXED_BYTES = tuple(_HEAD[part] for part in _FIXED)


def encode_single(payload: bytes) -> bytearray:
    """The body of a batch whose only message has nothing but *payload*."""
    length = len(payload)
    padding = -length % 8
    body = bytearray(_HEAD)
    _I64.pack_into(body, _BODY_LENGTH_AT, _OFFSETS_BYTES + length + padding)
    _I64.pack_into(body, _DATA_LENGTH_AT, length)
    body += _OFFSETS.pack(0, length)
    body += payload
    body += bytes(padding)
    return body


def find_single(body: Buffer) -> memoryview | None:
    """
    The payload in a body that ``encode_single`` would write, or None.

    All that describes the payload is compared, so nothing is left to check.
    """
    view = memoryview(body)
    byte_count = len(view)
    if not _HEAD_BYTES + _OFFSETS_BYTES <= byte_count <= SINGLE_BYTES_MAX:
        return None
    for part, expected in zip(_FIXED, _FIXED_BYTES, strict=True):
        if view[part] != expected:
            return None
    (length,) = _I64.unpack_from(view, _DATA_LENGTH_AT)
    begin = _HEAD_BYTES + _OFFSETS_BYTES
    if length < 0 or begin + length + -length % 8 != byte_count:
        return None
    (body_length,) = _I64.unpack_from(view, _BODY_LENGTH_AT)
    if body_length != byte_count - _HEAD_BYTES:
        return None
    if _OFFSETS.unpack_from(view, _HEAD_BYTES) != (0, length):
        return None
    return view[begin : begin + length]
