"""Queues, topics and streams of AWS, by the server of moto."""

from __future__ import annotations

from typing import Any

from botocore.session import Session

from support.servers.object_stores import ACCESS_KEY, SECRET_KEY, S3Server

REGION = "us-east-1"


def options_of(server: S3Server) -> dict[str, str]:
    """The options of connectors for *server*, which has all services."""
    return {
        "endpoint": f"http://127.0.0.1:{server.port}",
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }


def service(server: S3Server, name: str, region: str = REGION) -> Any:
    """A client of one service."""
    return Session().create_client(
        name,
        region_name=region,
        endpoint_url=f"http://127.0.0.1:{server.port}",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


def new_queue(sqs: Any, name: str) -> str:
    """The URL of a queue that did not exist."""
    is_fifo = name.endswith(".fifo")
    attributes = {"FifoQueue": "true"} if is_fifo else {}
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
