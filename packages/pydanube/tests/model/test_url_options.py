"""TLS options in URLs."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.url_options import UrlOptions, split_query, with_url_options


def test_options_in_the_query_of_a_url_are_read():
    options = UrlOptions.parse("ca_file=/etc/ca%20file.pem&server_name=broker")
    assert options == UrlOptions(ca_file="/etc/ca file.pem", server_name="broker")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("ca_fil=a", "unknown option 'ca_fil'.*did you mean 'ca_file'"),
        ("ca_file=", "one value for ca_file"),
        ("ca_file=a&ca_file=b", "one value for ca_file"),
        ("ca_file", "is not of the form"),
    ],
)
def test_malformed_queries_are_refused(query, error):
    with pytest.raises(InvalidRequest, match=error):
        UrlOptions.parse(query)


def test_options_are_added_to_a_url_and_override_those_in_it():
    url = with_url_options(
        "danubes://a,b:6652?ca_file=old&server_name=broker",
        UrlOptions(ca_file="/new/ca.pem"),
    )
    assert url == "danubes://a,b:6652?ca_file=/new/ca.pem&server_name=broker"
    assert with_url_options("danube://a", UrlOptions()) == "danube://a"


def test_question_marks_in_a_password_begin_no_query():
    assert split_query("danubes://u:p?w@a?ca_file=b") == (
        "danubes://u:p?w@a",
        "ca_file=b",
    )
