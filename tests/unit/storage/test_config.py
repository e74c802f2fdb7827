import msgspec
import pytest

from pydanube.storage.config import JournalConfig, StorageConfig


def test_the_defaults_are_valid():
    plain = msgspec.to_builtins(StorageConfig())
    assert msgspec.convert(plain, StorageConfig) == StorageConfig()
    assert StorageConfig().journal == JournalConfig()


@pytest.mark.parametrize(
    "settings",
    [
        {"seal_bytes": 0},
        {"seal_pace": -1},
        {"seal_interval_s": 0},
        {"journal": {"file_bytes_max": 10}},
        {"journal": {"file_bytes": 4096}},
    ],
)
def test_invalid_setting_is_refused_with_its_path(settings):
    with pytest.raises(msgspec.ValidationError, match=r"\$"):
        msgspec.convert(settings, StorageConfig)
