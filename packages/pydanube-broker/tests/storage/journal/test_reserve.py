"""Space is reserved, released once, and reserved again when the disk has space."""

import pytest

from pydanube_broker.storage.journal import reserve as module
from pydanube_broker.storage.journal.reserve import Reserve, ReserveFile
from support.fakes.small_disk import SmallDisk

MIB = 1024 * 1024


def opened(disk, byte_count):
    reserve = Reserve(disk, byte_count)
    reserve.open()
    return reserve


def test_a_reserve_is_released_once_and_refilled_when_twice_as_much_is_free():
    disk = SmallDisk(10 * MIB)
    reserve = opened(disk, MIB)
    assert (reserve.is_released, disk.occupied) == (False, MIB)
    assert not reserve.refill()
    file = disk.files.create("others")
    file.write([bytes(9 * MIB)])
    assert reserve.release()
    assert (reserve.is_released, disk.occupied) == (True, 0)
    assert reserve.release()
    assert not reserve.refill()
    file.truncate(8 * MIB)
    assert reserve.refill()
    assert (reserve.is_released, disk.occupied) == (False, MIB)


def test_a_reserve_of_no_bytes_is_never_released():
    for reserve in (Reserve(), opened(SmallDisk(0), 0)):
        assert not reserve.release()
        assert not reserve.is_released


def test_disk_without_space_for_the_reserve_counts_as_full():
    reserve = opened(SmallDisk(MIB), 2 * MIB)
    assert reserve.is_released
    assert "4194304 bytes are free" in reserve.refusal


def test_disk_with_little_space_counts_as_full():
    disk = SmallDisk(MIB + module.START_BYTES_MIN - 1)
    assert opened(disk, MIB).is_released
    assert disk.free_bytes() == disk.byte_count


def test_reserve_file_allocates_its_size(tmp_path):
    file = ReserveFile(tmp_path / "reserve")
    assert file.free_bytes() > 0
    for byte_count in (2 * MIB, MIB):
        file.allocate(byte_count)
        found = (tmp_path / "reserve").stat()
        assert found.st_size == byte_count
        assert found.st_blocks * 512 >= byte_count
        assert found.st_mode & 0o777 == 0o600
    file.free()
    file.free()
    assert list(tmp_path.iterdir()) == []


def test_a_reserve_file_that_does_not_fit_leaves_nothing(tmp_path):
    file = ReserveFile(tmp_path / "reserve")
    with pytest.raises(OSError, match=r"space|large"):
        file.allocate(1 << 60)
    assert list(tmp_path.iterdir()) == []
