"""How secrets stay out of what is shown."""

import pytest

from pydanube.spark.sinks.secrets import hide, of_url, shown_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:sesame@host:5432/db",
        "postgresql://ada:s%65same@host/db",
        "postgresql://host/db?user=ada&password=sesame",
        "host=h user=ada password=sesame dbname=db",
        "host=h password='sesame' dbname=db",
    ],
)
def test_the_password_of_a_url_is_hidden_wherever_it_stands(url):
    said = f"cannot connect to {url}: sesame refused"
    assert "sesame" not in hide(said, of_url(url))


def test_a_url_without_a_password_may_be_said():
    url = "postgresql://ada@host/db"
    assert hide(f"no {url}", of_url(url)) == f"no {url}"


def test_only_the_server_is_shown():
    url = "https://ada:sesame@host:8443/hooks/sesame?token=sesame#sesame"
    assert shown_url(url) == "https://host:8443"
    assert shown_url("http://[::1]:80/x") == "http://[::1]:80"
    assert shown_url("http://host:port/") == "***"
