"""TLS to brokers: its contexts, and what its failures mean for users."""

from __future__ import annotations

import ssl

from pydanube.aio.certificates import check_readable, load_certificate
from pydanube.aio.file_reloading import FromFiles
from pydanube.aio.tls_connection import NotTlsError
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    InvalidRequest,
    ProtocolViolation,
    Unauthenticated,
)
from pydanube.model.url_options import UrlOptions


class ClientTls:
    """A client's certificates for TLS, and the name that it expects of brokers."""

    def __init__(self, options: UrlOptions) -> None:
        """
        Read the files that *options* name.

        Raises:
            InvalidRequest: A file is missing or damaged, or an option is missing.
        """
        if bool(options.certificate_file) != bool(options.key_file):
            raise InvalidRequest(
                "certificate_file and key_file: give both or neither; the key belongs "
                "to the certificate"
            )
        self.server_name = options.server_name
        names = (options.ca_file, options.certificate_file, options.key_file)
        self._context = FromFiles(
            lambda: _load(options), [each or "" for each in names], "TLS certificates"
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection; changed files are read again."""
        return self._context.get()


def _load(options: UrlOptions) -> ssl.SSLContext:
    check_readable(
        ca_file=options.ca_file,
        certificate_file=options.certificate_file,
        key_file=options.key_file,
    )
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except ssl.SSLError as error:
        raise InvalidRequest(
            f"ca_file: expected certificates in PEM format, got {options.ca_file} "
            f"({error.reason or error})"
        ) from error
    if options.certificate_file is not None and options.key_file is not None:
        load_certificate(context, options.certificate_file, options.key_file)
    return context


def explain(failure: Exception) -> Exception:
    """
    Return what *failure* of a handshake or a connection means for the user.

    Failures that do not come from TLS are returned as they are.
    """
    if isinstance(failure, NotTlsError):
        return ProtocolViolation(
            "the server does not speak TLS on this port: use a URL that begins with "
            "danube://, or turn TLS on in the settings of the broker (tls)"
        )
    if isinstance(failure, ssl.SSLCertVerificationError):
        return Unauthenticated(_distrust(failure))
    if isinstance(failure, ssl.SSLError):
        return _of_alert(failure.reason or str(failure))
    return failure


# The last is for a certificate with the name of the authority and another key.
_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "DECRYPT_ERROR")


def _distrust(failure: ssl.SSLCertVerificationError) -> str:
    """Return why the client refuses the certificate of the broker."""
    why = failure.verify_message
    # The codes are the X509_V_ERR constants of OpenSSL.
    match failure.verify_code:
        case 10:
            return "the broker's certificate has expired: renew it"
        case 62 | 64:
            return (
                f"the broker's certificate is for another name ({why}): connect to "
                "a name in the certificate, or set server_name to one"
            )
        case 7 | 18 | 19 | 20 | 21:
            return (
                f"the broker's certificate is not trusted ({why}): set ca_file to the "
                "certificate of the authority that issued it"
            )
        case _:
            return f"the broker's certificate is not valid: {why}"


def _of_alert(reason: str) -> BrokerError:
    """Return the error for the *reason* of OpenSSL, such as an alert of the broker."""
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return Unauthenticated(
            "the broker requires a client certificate: set certificate_file and "
            f"key_file ({reason})"
        )
    if "ALERT" in reason and any(each in reason for each in _REFUSALS):
        return Unauthenticated(
            "the broker refuses the certificate of this client: it needs one that has "
            f"not expired, of an authority in tls.client_ca_file ({reason})"
        )
    return ConnectionLost(f"TLS has failed: {reason}")
