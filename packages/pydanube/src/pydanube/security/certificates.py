"""The identities in client certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydanube.model.errors import Unauthenticated
from pydanube.security.credentials import is_principal_name
from pydanube.security.principals import Principal

SPIFFE = "spiffe://"


def principal_of_certificate(
    certificate: Mapping[str, Any], expires_at_s: float
) -> Principal:
    """
    Return the principal of *certificate*, which TLS has verified.

    Its name is the first of these that the certificate has: a URI of SPIFFE, a DNS name
    and an e-mail address among the alternative names, and the common name.  Its groups
    are the organizational units.

    Args:
        certificate: As ``ssl.SSLObject.getpeercert`` returns it.
        expires_at_s: The Unix time of its field ``notAfter``.

    Raises:
        Unauthenticated: The certificate has no name of a principal.
    """
    alternatives = [
        (str(kind), str(name))
        for kind, name, *_ in certificate.get("subjectAltName", ())
    ]
    subject = [
        (field, str(value))
        for relative in certificate.get("subject", ())
        for field, value in relative
    ]
    names = [
        *(
            name
            for kind, name in alternatives
            if kind == "URI" and name.startswith(SPIFFE)
        ),
        *(name for kind, name in alternatives if kind == "DNS"),
        *(name for kind, name in alternatives if kind == "email"),
        *(value for field, value in subject if field == "commonName"),
    ]
    if not names or not is_principal_name(names[0]):
        raise Unauthenticated(
            "the certificate of the client has no name of a principal: neither an "
            "alternative name (URI of SPIFFE, DNS or e-mail) nor a common name"
        )
    units = [value for field, value in subject if field == "organizationalUnitName"]
    groups = tuple(filter(is_principal_name, units))
    return Principal(names[0], "certificate", groups, expires_at_s)
