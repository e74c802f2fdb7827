"""The checksum of batches and files."""

from pydanube.wire.checksum import crc32c


def test_check_value_of_the_standard():
    # RFC 3720, B.4, and the check value of the catalogue of CRCs.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283
