"""The identities in certificates."""

from __future__ import annotations

import pytest

from pydanube.model.errors import Unauthenticated
from pydanube.security.certificates import principal_of_certificate
from pydanube.security.principals import Principal

URI = ("URI", "spiffe://example/billing")
OTHER_URI = ("URI", "https://example/billing")
DNS = ("DNS", "billing.example")
EMAIL = ("email", "billing@example")
CN = ((("commonName", "Billing"),),)


def certificate(*alternatives, subject=()):
    return {"subject": subject, "subjectAltName": alternatives}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (certificate(EMAIL, DNS, URI, subject=CN), "spiffe://example/billing"),
        (certificate(EMAIL, OTHER_URI, DNS, subject=CN), "billing.example"),
        (certificate(EMAIL, subject=CN), "billing@example"),
        (certificate(subject=CN), "Billing"),
        (certificate(("IP Address", "::1"), OTHER_URI, subject=CN), "Billing"),
    ],
)
def test_a_name_is_chosen(given, name):
    principal = principal_of_certificate(given, 7.0)
    assert principal == Principal(name, "certificate", (), 7.0)


def test_organizational_units_are_groups():
    subject = (
        (("organizationalUnitName", "finance"), ("commonName", "Billing")),
        (("organizationalUnitName", "reports"),),
    )
    found = principal_of_certificate(certificate(subject=subject), 7.0)
    assert found.groups == ("finance", "reports")


@pytest.mark.parametrize(
    "given",
    [
        {},
        certificate(),
        certificate(OTHER_URI),
        certificate(subject=((("commonName", ""),),)),
        certificate(subject=((("commonName", "bootstrap"),),)),
        certificate(("DNS", "a\nb"), subject=CN),
    ],
)
def test_a_certificate_without_a_name_is_refused(given):
    with pytest.raises(Unauthenticated, match="no name of a principal"):
        principal_of_certificate(given, 7.0)
