"""Object container files: exactly one datum, and bounded memory."""

from __future__ import annotations

import json
from io import BytesIO

import fastavro
import pytest

from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.avro.container import DATUM_BYTES_MAX
from support.drivers.limited import run_limited

TEXT = AvroSchema('"string"')
CODECS = ("null", "deflate", "bzip2", "xz")


def container_of(values, schema="string", codec="null"):
    sink = BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), values, codec=codec)
    return sink.getvalue()


def reason_of(schema, payload):
    [(_, reason)] = schema.validator()([payload])
    return reason


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_with_one_datum_is_read(codec):
    payload = container_of(["some text" * 100], codec=codec)
    assert TEXT.validator()([payload]) == []
    assert TEXT.decoder()([payload]) == ["some text" * 100]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", [0, 5, 60, 100, -20, -1])
def test_a_damaged_file_is_refused(codec, damage):
    payload = bytearray(container_of(["some text" * 100], codec=codec))
    del payload[damage]
    assert reason_of(TEXT, bytes(payload))


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_file_that_expands_too_much_is_refused(codec):
    payload = container_of(["a" * 3 * DATUM_BYTES_MAX], codec=codec)
    assert f"more than {DATUM_BYTES_MAX} bytes" in reason_of(TEXT, payload)


def test_the_schema_in_a_file_is_checked_like_any_other():
    endless = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": ["null", "R"]}],
    }
    value = None
    for _ in range(255):
        value = {"n": value}
    schema = AvroSchema(json.dumps(endless))
    payload = container_of([value], schema=endless)
    assert schema.validator()([payload]) == []
    deeper = payload.replace(b'["null","R"]', b'"R"         ')
    deeper = deeper.replace(b'["null", "R"]', b'"R"          ')
    assert deeper != payload
    assert "none is finite" in reason_of(schema, deeper)


def test_an_unknown_codec_and_a_broken_schema_are_refused():
    payload = container_of(["text"])
    assert "codec" in reason_of(TEXT, payload.replace(b"null", b"nulL"))
    assert "schema" in reason_of(TEXT, payload.replace(b'"string"', b'"strinG"'))


@pytest.mark.slow
def test_a_file_of_292_kb_that_holds_300_mb_takes_64_mib():
    run_limited(
        """
        import zlib
        from io import BytesIO
        import fastavro
        from pydanube.schemas.avro import AvroSchema

        size = 300_000_000
        compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
        block = compressor.compress(b"\\x80\\xcc\\x8c\\x9e\\x02")
        for _ in range(300):
            block += compressor.compress(b"a" * 1_000_000)
        block += compressor.flush()
        sink = BytesIO()
        fastavro.writer(sink, "string", ["a"], codec="deflate")
        small = sink.getvalue()
        marker = small[-16:]
        head = small[: small.index(marker) + 16]
        sink = BytesIO()
        fastavro.schemaless_writer(sink, "bytes", block)
        payload = head + b"\\x02" + sink.getvalue() + marker
        assert len(payload) < 300_000
        [(_, reason)] = AvroSchema('"string"').validator()([payload])
        assert "its datum has more" in reason, reason
        """,
        memory_mib=350 + 64,
        cpu_s=10,
    )
