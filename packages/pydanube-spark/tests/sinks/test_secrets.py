"""Tests of the redaction of secrets."""

import pytest

from pydanube_spark.sinks.secrets import in_url, redact, url_origin


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
def test_password_of_url_is_redacted_everywhere(url):
    said = f"cannot connect to {url}: sesame refused"
    assert "sesame" not in redact(said, in_url(url))


def test_url_without_password_has_no_secrets():
    url = "postgresql://ada@host/db"
    assert redact(f"no {url}", in_url(url)) == f"no {url}"


def test_url_origin_has_scheme_host_and_port():
    url = "https://ada:sesame@host:8443/hooks/sesame?token=sesame#sesame"
    assert url_origin(url) == "https://host:8443"
    assert url_origin("http://[::1]:80/x") == "http://[::1]:80"
    assert url_origin("http://host:port/") == "***"
