"""Every kind of file of a data directory, damaged in every simple way."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from attack import damage

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A directory with known contents, and an older copy of it."""
    with damage.quiet():
        return asyncio.run(damage.make_original(tmp_path_factory.mktemp("original")))


def empty(path, _older):
    damage.cut(path, 0)


def cut_in_half(path, _older):
    damage.cut(path, path.stat().st_size // 2)


def remove(path, _older):
    path.unlink()


def replace_by_older(path, older):
    shutil.copy(older, path)


def flip_a_bit(share):
    def flip(path, _older):
        content = bytearray(path.read_bytes())
        content[int((len(content) - 1) * share)] ^= 16
        path.write_bytes(content)

    return flip


CHANGES = [empty, cut_in_half, remove, *map(flip_a_bit, (0, 0.3, 0.7, 1))]
# SQLite has no checksums, so a bit of the metadata store may go unnoticed.
METADATA_CHANGES = [empty, cut_in_half, remove, replace_by_older, flip_a_bit(0)]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("metadata.sqlite", METADATA_CHANGES),
        ("journal/00000000000000000001.journal", [*CHANGES, replace_by_older]),
        ("objects/.cluster.json", CHANGES),
        (f"objects{damage.MIXED}/{3:020d}-{4:020d}-1.parquet", CHANGES),
    ],
)
def test_broker_serves_undamaged_messages_or_refuses_a_damaged_file(
    tmp_path, original, name, changes
):
    for number, change in enumerate(changes):
        data = shutil.copytree(original.new, tmp_path / f"{number}")
        change(data / name, original.old / name)
        asyncio.run(damage.check_damaged(data, original))
