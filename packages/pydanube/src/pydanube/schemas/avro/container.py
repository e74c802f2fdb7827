"""
Object container files of Avro that hold one datum.

Source: Apache Avro specification 1.12, "Object Container Files".  This module reads the
framing of the file itself, so that the size of a decompressed block is bounded, and the
schema in the file is checked like any other.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from io import BytesIO
from typing import Any

import fastavro
import msgspec

from pydanube.model.errors import InvalidPayload
from pydanube.schemas.avro.bounds import check_datum
from pydanube.schemas.avro.parser import parse_avro
from pydanube.schemas.language import DEFINITION_BYTES_MAX

CONTAINER_MAGIC = b"Obj\x01"
DATUM_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of the decompressed datum."""
XZ_MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""The maximum memory for the dictionary of an xz block."""

# A file with one block, after the magic bytes.  The size of a block and its bytes are
# encoded like a value of the type bytes.
_FILE = {
    "type": "record",
    "name": "File",
    "fields": [
        {"name": "metadata", "type": {"type": "map", "values": "bytes"}},
        {"name": "marker", "type": {"type": "fixed", "name": "Marker", "size": 16}},
        {"name": "count", "type": "long"},
        {"name": "block", "type": "bytes"},
        {"name": "end", "type": "Marker"},
    ],
}
_FILE_TYPE, _ = parse_avro(msgspec.json.encode(_FILE).decode())
_FILE_PARSED: Any = fastavro.parse_schema(_FILE)


def open_container(payload: bytes) -> tuple[str, bytes]:
    """
    Return the schema and the only datum in the container file *payload*.

    Bounds: The datum has at most ``DATUM_BYTES_MAX`` bytes, and no more than that is
        decompressed.

    Raises:
        InvalidPayload: It is not a container file, or does not hold exactly one datum.
    """
    rest = payload.removeprefix(CONTAINER_MAGIC)
    try:
        end = check_datum(rest, _FILE_TYPE)
        file: Any = fastavro.schemaless_reader(BytesIO(rest), _FILE_PARSED, None)
    except (InvalidPayload, EOFError, ValueError, IndexError) as error:
        raise _refused(str(error) or type(error).__name__) from error
    if file["count"] != 1 or end != len(rest):
        held = file["count"] if end == len(rest) else "several"
        raise InvalidPayload(f"the container file holds {held} data, not one")
    if file["marker"] != file["end"]:
        raise _refused(
            "the sync marker after the block differs from that of the header"
        )
    metadata = file["metadata"]
    definition = metadata.get("avro.schema", b"")
    if len(definition) > DEFINITION_BYTES_MAX:
        raise _refused(f"its schema has more than {DEFINITION_BYTES_MAX} bytes")
    codec = metadata.get("avro.codec", b"null").decode(errors="replace")
    return definition.decode(errors="replace"), _decompress(file["block"], codec)


def _decompress(block: bytes, codec: str) -> bytes:
    decompressor: Any
    match codec:
        case "null":
            return block
        case "deflate":
            decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
        case "bzip2":
            decompressor = bz2.BZ2Decompressor()
        case "xz":
            decompressor = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES_MAX)
        case _:
            raise _refused(
                f"its codec is {codec!r:.50}; null, deflate, bzip2 and xz are allowed"
            )
    try:
        datum: bytes = decompressor.decompress(block, DATUM_BYTES_MAX)
        if not decompressor.eof:
            # The block exceeds the limit or is incomplete; zlib returns what is left.
            left = getattr(decompressor, "unconsumed_tail", b"")
            datum += decompressor.decompress(left, 1)
    except (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise _refused(f"its block is damaged: {error}") from error
    if len(datum) > DATUM_BYTES_MAX:
        raise _refused(f"its datum has more than {DATUM_BYTES_MAX} bytes")
    return datum


def _refused(reason: str) -> InvalidPayload:
    return InvalidPayload(f"not a container file of the Avro schema: {reason}")
