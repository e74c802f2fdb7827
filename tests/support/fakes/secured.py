"""Brokers that need credentials, and an issuer of tokens."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from warnings import catch_warnings, simplefilter

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

import pydanube
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, TlsConfig, config_type
from pydanube_broker.servers.settings.security_config import JwtConfig, SecurityConfig
from pydanube_kafka.config import KafkaConfig
from pydanube_mqtt.config import MqttConfig

ISSUER = "https://issuer.example"
AUDIENCE = "danube"


def now() -> datetime:
    """The time."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)


KEYS = {
    "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}, private=True),
    "ES256": ECKey.generate_key("P-256", {"kid": "ec"}, private=True),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "okp"}, private=True),
}


def jwks(*keys) -> str:
    """The public part of *keys*; by default of all."""
    found = [each.as_dict(private=False) for each in keys or KEYS.values()]
    return json.dumps({"keys": found})


def signed(claims, algorithm="ES256", *, key=None, header=None) -> str:
    """A token with *claims*."""
    key = key or KEYS[algorithm]
    whole = {"alg": algorithm, "kid": key.kid} | (header or {})
    whole = {name: value for name, value in whole.items() if value is not None}
    with catch_warnings():
        simplefilter("ignore")
        return jws.serialize_compact(
            whole, json.dumps(claims), key, algorithms=[algorithm]
        )


def claims(now_s=None, **changes):
    """The claims of a valid token, with *changes*; None: without the claim."""
    now_s = now().timestamp() if now_s is None else now_s
    found = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now_s,
        "exp": now_s + 3600,
        "groups": ["traders"],
    } | changes
    return {name: value for name, value in found.items() if value is not None}


PERMITTED = ("alice", "billing", "localhost")
"""The principals that have the role admin on ``RESOURCES``."""
RESOURCES = ("cluster", "/default", "/default/*", "subject:*")


@asynccontextmanager
async def secured(
    directory, *, tls=None, jwt=None, mqtt=None, kafka=None, stores=None, **security
):
    """Run a broker in this process that needs credentials, and knows ``PERMITTED``."""
    config = config_type()(
        data_dir=directory / "data",
        listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
        kafka=KafkaConfig(**(kafka or {})),
        mqtt=MqttConfig(**(mqtt or {})),
        stores=stores or {},
        tls=TlsConfig(**(tls or {})),
        security=SecurityConfig(
            enabled=True,
            bootstrap_key_file=str(directory / "bootstrap.key"),
            jwt=JwtConfig(**(jwt or {})),
            **security,
        ),
    )
    options = {}
    if tls:
        files = ("client_ca_file", "certificate_file", "key_file")
        options |= dict(zip(("ca_file", *files[1:]), map(tls.get, files), strict=True))
    async with serve(config) as broker:
        options["api_key"] = bootstrap_key(directory)
        async with pydanube.connect(broker.stream_url, **options) as admin:
            for name in PERMITTED:
                await admin.security.add_binding(f"user:{name}", ["admin"], RESOURCES)
        yield broker


def bootstrap_key(directory) -> str:
    """The key that the broker has created."""
    return (directory / "bootstrap.key").read_text().strip()
