import msgspec
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.storage.config import JournalConfig, StorageConfig


def test_the_defaults_are_valid():
    assert StorageConfig().journal == JournalConfig()


@pytest.mark.parametrize(
    "settings", [{"seal_bytes": 0}, {"seal_pace": -1}, {"seal_interval_s": 0}]
)
def test_values_that_make_no_sense_are_refused(settings):
    with pytest.raises(InvalidConfig, match=next(iter(settings))):
        StorageConfig(**settings)


def test_unknown_settings_are_refused():
    with pytest.raises(msgspec.ValidationError, match=r"\$\.journal"):
        msgspec.convert({"journal": {"file_bytes": 1}}, StorageConfig)
