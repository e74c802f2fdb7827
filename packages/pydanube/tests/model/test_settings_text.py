"""Settings are one readable line."""

from pydanube.model.policy import CorruptionPolicy, Retention
from pydanube.model.settings_text import settings_text


def test_fields_that_differ_from_the_defaults_are_named():
    retention = Retention(age_s=60.0, drops_acknowledged=True)
    assert settings_text(retention) == "age_s=60.0, drops_acknowledged=True"
    assert settings_text(Retention()) == "defaults"


def test_a_mapping_is_shown_with_nested_settings():
    settings = {
        "on_corruption": CorruptionPolicy.SKIP,
        "retention": Retention(bytes_max=7),
        "seal_age_s": None,
    }
    assert settings_text(settings) == (
        "on_corruption=skip, retention=(bytes_max=7), seal_age_s=None"
    )
