"""Secrets do not appear in texts for people."""

import pytest

from pydanube.model.redaction import mask, without_password


def test_secrets_are_masked_the_longest_first():
    assert mask("ab abc d", ["ab", "abc", ""]) == "*** *** d"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("danube://broker:6651", "danube://broker:6651"),
        ("danube://ada@broker", "danube://ada@broker"),
        ("danube://ada:secret@broker:6651", "danube://ada:***@broker:6651"),
        ("danube://ada:@broker", "danube://ada:***@broker"),
        ("danube://ada:se/c@r?e#t@broker", "danube://ada:***@broker"),
        ("danube://ada:se://ret@broker", "danube://ada:***@broker"),
        ("ada:secret@broker", "ada:***@broker"),
        ("", ""),
    ],
)
def test_password_of_a_url_is_masked(url, shown):
    assert without_password(url) == shown
