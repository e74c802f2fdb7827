"""The settings of security."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidConfig
from pydanube.security.credentials import BOOTSTRAP, is_principal_name
from pydanube.security.principals import Principal
from pydanube.security.quotas import BYTES_PER_S_MIN, QUOTA_MAX, Quota
from pydanube.security.tokens import ALGORITHMS, TokenRules


class JwtConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens (JWT) of an identity provider, such as one with OpenID Connect."""

    issuer: str = ""
    """The issuer of tokens, which their claim iss must be. Empty: the broker accepts no
    tokens."""
    audience: str = ""
    """The name of this broker or cluster, which the claim aud of tokens contains."""
    algorithms: str = ",".join(ALGORITHMS)
    """The algorithms of signatures that are accepted, separated by commas: RS256, ES256
    and EdDSA."""
    keys_file: str = ""
    """A file with the public keys of the issuer, as a JWKS or in PEM format. The broker
    reads it again when it changes."""
    keys_url: str = ""
    """The address of the JWKS with the public keys of the issuer, as https://...; http
    is accepted for this machine only."""
    keys_refresh_s: Annotated[float, Meta(ge=10, le=86_400)] = 300.0
    """The broker fetches the keys again after this time, and earlier if a token has an
    unknown key."""
    keys_refresh_min_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """The minimum time between two fetches of the keys."""
    name_claim: str = "sub"
    """The claim with the name of the principal."""
    groups_claim: str = "groups"
    """The claim with the groups of the principal: a list, or a text with spaces."""
    leeway_s: Annotated[float, Meta(ge=0, le=300)] = 30.0
    """How far the clocks of the issuer and of the broker may differ."""

    def __post_init__(self) -> None:
        given = {
            "audience": self.audience,
            "keys_file": self.keys_file,
            "keys_url": self.keys_url,
        }
        if not self.issuer:
            for name, value in given.items():
                if value:
                    raise InvalidConfig(
                        f"issuer: expected the issuer of tokens, because {name} is "
                        f"{value!r}, got nothing"
                    )
            return
        if not self.audience:
            raise InvalidConfig(
                "audience: expected the audience of tokens, because issuer is "
                f"{self.issuer!r}, got nothing"
            )
        if bool(self.keys_file) == bool(self.keys_url):
            raise InvalidConfig(
                "keys_file, keys_url: expected one of them, because issuer is "
                f"{self.issuer!r}, got {'both' if self.keys_file else 'neither'}"
            )
        if unknown := set(self.algorithm_names) - set(ALGORITHMS):
            raise InvalidConfig(
                f"algorithms: expected some of {', '.join(ALGORITHMS)}, got "
                f"{min(unknown)!r}"
            )
        if not self.algorithm_names:
            raise InvalidConfig("algorithms: expected at least one, got nothing")
        if self.keys_url and not _is_safe_url(self.keys_url):
            raise InvalidConfig(
                "keys_url: expected an address that begins with https://, or with "
                f"http:// and this machine's, got {self.keys_url!r}"
            )

    @property
    def algorithm_names(self) -> tuple[str, ...]:
        """The algorithms that are accepted."""
        return tuple(_names_in(self.algorithms))

    @property
    def rules(self) -> TokenRules:
        """The requirements for tokens."""
        return TokenRules(
            issuer=self.issuer,
            audience=self.audience,
            algorithms=self.algorithm_names,
            name_claim=self.name_claim,
            groups_claim=self.groups_claim,
            leeway_s=self.leeway_s,
        )


class QuotaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """
    The quota of each principal that has none of its own; 0: no limit.

    Clients without credentials are one principal together. Superusers have no limits.
    """

    connections: Annotated[int, Meta(ge=0, le=QUOTA_MAX)] = 0
    """Open connections, on all ports together."""
    requests_per_s: Annotated[int, Meta(ge=0, le=QUOTA_MAX)] = 0
    """Requests per second; batches and acknowledgements do not count."""
    bytes_in_per_s: Annotated[int, Meta(ge=0, le=QUOTA_MAX)] = 0
    """Published bytes per second; at least 1,024."""
    bytes_out_per_s: Annotated[int, Meta(ge=0, le=QUOTA_MAX)] = 0
    """Delivered and fetched bytes per second; at least 1,024."""
    sessions: Annotated[int, Meta(ge=0, le=QUOTA_MAX)] = 0
    """MQTT sessions that outlive their connections."""

    def __post_init__(self) -> None:
        for name in ("bytes_in_per_s", "bytes_out_per_s"):
            if 0 < getattr(self, name) < BYTES_PER_S_MIN:
                raise InvalidConfig(
                    f"{name}: expected 0 or at least {BYTES_PER_S_MIN}, got "
                    f"{getattr(self, name)}"
                )

    @property
    def quota(self) -> Quota:
        """The same as a quota."""
        return Quota(**msgspec.structs.asdict(self))


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The access policy and the audit log."""

    enabled: bool = False
    """Accept only clients with valid credentials, except for health checks, and let
    clients do only what roles and bindings permit."""
    api_keys: bool = True
    """Accept API keys, which 'danube security keys' creates."""
    certificates: bool = True
    """Accept the certificates of clients, if tls.client_certificates verifies them, as
    credentials of clients that send no others."""
    bootstrap_key_file: str = ""
    """A file with the API key of the principal bootstrap, a superuser that creates the
    first API keys. If the file does not exist, the broker creates it with a new key.
    All brokers of a cluster may have the same file."""
    superusers: str = ""
    """The names of principals that may do everything, separated by commas."""
    audit_file: str = ""
    """A file to which the broker appends a line of JSON for each administrative
    request, each refusal and each failed authentication. The broker opens it again if
    it was renamed. Empty: no file."""
    jwt: JwtConfig = JwtConfig()
    quota: QuotaConfig = QuotaConfig()

    def __post_init__(self) -> None:
        for name in self.superuser_names:
            if not is_principal_name(name):
                raise InvalidConfig(
                    f"superusers: expected names of principals, got {name!r}"
                )

    @property
    def superuser_names(self) -> frozenset[str]:
        """The superusers, apart from the principal of the bootstrap key."""
        return frozenset(_names_in(self.superusers))

    def is_superuser(self, principal: Principal) -> bool:
        """Return whether *principal* may do everything."""
        if principal.name == BOOTSTRAP:
            # No other credential gives this name.
            return principal.method == "api_key"
        return (
            principal.method != "anonymous" and principal.name in self.superuser_names
        )


def _names_in(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]


def _is_safe_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_here = parts.hostname in {"127.0.0.1", "localhost", "::1"}
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_here)
    )
