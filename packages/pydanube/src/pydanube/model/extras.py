"""The extras of ``pydanube``, and the packages that each of them installs."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

EXTRAS = {
    "fast": ("pyarrow", "uvloop"),
    "schemas": ("fastavro", "jsonschema_rs", "msgspec"),
    "protoc": ("grpc_tools",),
    "cli": ("pydanube_cli", "rich", "typer", "yaml"),
    "broker": (
        "pydanube_broker",
        "cryptography",
        "joserfc",
        "prometheus_client",
        "starlette",
        "structlog",
        "uvicorn",
    ),
    "objects": ("opendal", "pyarrow"),
    "redis": ("redis",),
    "etcd": ("grpc",),
    "zookeeper": ("pydanube_zookeeper", "kazoo"),
    "spark": ("pydanube_spark", "pandas", "pyspark"),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "pipelines": ("cloudpickle", "openlineage", "prometheus_client"),
    "postgres": ("adbc_driver_postgresql",),
    "lancedb": ("lancedb",),
    "clickhouse": ("httpx",),
    "kafka": ("pydanube_kafka",),
    "mqtt": ("pydanube_mqtt",),
    "aws": ("botocore",),
    "mqtt-connectors": ("aiomqtt",),
    "kafka-connectors": ("confluent_kafka",),
    "sql": ("sqlalchemy",),
    "mysql-cdc": ("pymysql", "pymysqlreplication"),
    "nats": ("nats",),
    "otlp": ("opentelemetry.proto",),
    "rabbitmq": ("aio_pika",),
    "postgres-cdc": ("psycopg",),
    "qdrant": ("qdrant_client",),
    "connect": (
        "pydanube_connect",
        "httpx",
        "jmespath",
        "prometheus_client",
        "starlette",
        "uvicorn",
    ),
    "mcp": ("mcp",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "console": ("pydanube_console", "nicegui"),
}
"""The packages that must be importable, by the name of the extra."""


class MissingExtra(ModuleNotFoundError):
    """A feature needs packages that are not installed; the message names the extra."""


def extra_of(module: str | None) -> str | None:
    """Return the extra that installs the package of *module*, or None."""
    package = (module or "").partition(".")[0]
    return next((each for each in EXTRAS if package in EXTRAS[each]), None)


def extra_hint(name: str) -> str:
    """Return how to install the extra *name*, or an empty text if there is none."""
    return f"; pip install 'pydanube[{name}]' brings it" if name in EXTRAS else ""


@cache
def require(extra: str, feature: str) -> None:
    """
    Check that the packages of *extra* are installed, without importing them.

    Args:
        extra: A key of ``EXTRAS``.
        feature: The feature that needs them, for the message: "the command line".

    Raises:
        MissingExtra: At least one of the packages is missing.
    """
    missing = [package for package in EXTRAS[extra] if not _is_installed(package)]
    if missing:
        raise MissingExtra(
            f"{feature} needs packages that are not installed ({', '.join(missing)}): "
            f"pip install 'pydanube[{extra}]'",
            name=missing[0],
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False  # Nor is the package that it is in.
