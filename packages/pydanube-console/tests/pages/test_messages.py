"""The address of the page says what is shown."""

import pytest

from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube_console.message_download import DownloadForm
from pydanube_console.pages.messages import (
    parse_columns,
    parse_download,
    parse_filter,
)

OPTIONS = {"topic": "/shop/orders", "form": "csv"}


def test_conditions_stand_in_lines():
    found = parse_filter("k", "", " value.id = 1 \n\nattributes.a = 'b'")
    assert [each.root for each in found.conditions] == ["value", "attributes"]
    assert found.key == "k"


def test_no_columns_are_no_fields():
    assert parse_columns(" ") == ()
    assert [each.text for each in parse_columns("id, user.name")] == ["id", "user.name"]


def test_download_has_the_options_of_the_address():
    found = parse_download({**OPTIONS, "start": "5", "columns": "id"})
    assert (found.topic, found.form, found.start) == (
        "/shop/orders",
        DownloadForm.CSV,
        5,
    )
    assert parse_download(OPTIONS).start == "earliest"


@pytest.mark.parametrize(
    "wrong",
    [{"form": ""}, {"where": "value"}, {"columns": "a..b"}, {"start": "soon"}],
)
def test_malformed_options_of_a_download_are_refused(wrong):
    with pytest.raises(InvalidRequest):
        parse_download({**OPTIONS, **wrong})


def test_download_needs_a_topic():
    with pytest.raises(InvalidName):
        parse_download({"form": "csv"})
