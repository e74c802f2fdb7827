"""The options of a connection, in the URLs of brokers and elsewhere."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.suggestions import did_you_mean

SCHEME = "danubes"
"""The scheme of the URLs of brokers with TLS."""
_TRUTH_VALUES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlOptions:
    """The files and names for TLS, and files with credentials; None: not given."""

    ca_file: str | None = None
    """A PEM file with the certificates of the authorities to trust."""
    certificate_file: str | None = None
    """A PEM file with the certificate of the client."""
    key_file: str | None = None
    """A PEM file with the key of that certificate."""
    server_name: str | None = None
    """The name in the broker's certificate, if it is not the host of the URL."""
    token_file: str | None = None
    """A file with the client's token, which is read for each connection."""
    api_key_file: str | None = None
    """A file with the client's API key, which is read for each connection."""
    allow_plaintext_credentials: str | None = None
    """``true``: credentials may be sent to other machines without TLS."""

    def __post_init__(self) -> None:
        """
        Check the values.

        Raises:
            InvalidRequest: One is malformed.
        """
        allowed = self.allow_plaintext_credentials
        if allowed not in {None, *_TRUTH_VALUES}:
            raise InvalidRequest(
                f"allow_plaintext_credentials is {allowed!r}; it must be true or false"
            )

    @property
    def allows_plaintext_credentials(self) -> bool:
        """Whether credentials may be sent to other machines without TLS."""
        return _TRUTH_VALUES.get(self.allow_plaintext_credentials or "", False)

    @classmethod
    def of(
        cls,
        ca_file: str | Path | None,
        certificate_file: str | Path | None,
        key_file: str | Path | None,
        server_name: str | None,
    ) -> UrlOptions:
        """Return the options with the text of these paths."""
        paths = (ca_file, certificate_file, key_file)
        ca, certificate, key = (None if path is None else str(path) for path in paths)
        return cls(
            ca_file=ca,
            certificate_file=certificate,
            key_file=key,
            server_name=server_name,
        )

    @classmethod
    def parse(cls, query: str) -> UrlOptions:
        """
        Return the options in the query of a URL, such as ``ca_file=ca.pem``.

        Raises:
            InvalidRequest: An option is unknown, empty or given twice.
        """
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
        except ValueError:
            raise InvalidRequest(
                f"{query!r} in the URL is not of the form ca_file=ca.pem&server_name=b"
            ) from None
        given: dict[str, str] = {}
        for name, value in pairs:
            if name not in OPTIONS:
                raise InvalidRequest(
                    f"the URL has the unknown option {name!r}; known are "
                    f"{', '.join(OPTIONS)}{did_you_mean(name, OPTIONS)}"
                )
            if name in given or not value:
                raise InvalidRequest(
                    f"the URL needs one value for {name}, as in {name}=VALUE"
                )
            given[name] = value
        return cls(**given)

    def overridden_by(self, other: UrlOptions) -> UrlOptions:
        """Return these options, with those of *other* that are given."""
        return replace(self, **other.given())

    def given(self) -> dict[str, str]:
        """Return the options that are given."""
        return {
            name: value for name, value in asdict(self).items() if value is not None
        }


OPTIONS = tuple(each.name for each in fields(UrlOptions))
TLS_OPTIONS = ("ca_file", "certificate_file", "key_file", "server_name")
"""The options that only URLs with TLS have."""


def with_url_options(url: str, options: UrlOptions) -> str:
    """
    Return *url* with *options* in its query, where they override others.

    Raises:
        InvalidRequest: The query of *url* is malformed.
    """
    if not options.given():
        return url
    address, query = split_query(url)
    known = UrlOptions.parse(query) if query else UrlOptions()
    found = known.overridden_by(options).given()
    return f"{address}?{urlencode(found, safe='/:')}"


def split_query(url: str) -> tuple[str, str]:
    """Return *url* without its query, and the query."""
    # A password may contain any character.
    user, at, rest = url.rpartition("@")
    address, _, query = rest.partition("?")
    return f"{user}{at}{address}", query
