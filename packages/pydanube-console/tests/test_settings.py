"""The console has no credentials of its own."""

import pytest

from pydanube_console.settings import has_certificate, without_credentials


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("danube://a,b:1", "danube://a,b:1"),
        ("danubes://a?ca_file=ca.pem", "danubes://a?ca_file=ca.pem"),
        ("danubes://a?api_key_file=key&ca_file=x", "danubes://a?ca_file=x"),
        ("danube://a?token_file=t", "danube://a"),
    ],
)
def test_files_with_credentials_are_left_out(url, kept):
    assert without_credentials(url) == kept


def test_certificate_is_an_identity():
    assert has_certificate("danubes://a?certificate_file=c.pem&key_file=k.pem")
    assert not has_certificate("danubes://a?ca_file=ca.pem")
