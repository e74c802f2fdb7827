"""The queues of Amazon SQS, for the source and the sink."""

from __future__ import annotations

from pydanube_connect.aws_connection import AwsClient


def queue_problems(queue: str) -> dict[str, str]:
    """Return whether the option ``queue`` is malformed."""
    name = queue.rpartition("/")[2].removesuffix(".fifo")
    is_name = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    is_url = queue.startswith(("http://", "https://"))
    if is_name and len(name) <= 80 and (is_url or "/" not in queue):
        return {}
    return {"queue": f"{queue!r} is not the name or the URL of a queue"}


async def url_of(client: AwsClient, queue: str) -> str:
    """Return the URL of *queue*, a name or a URL."""
    if "/" in queue:
        return queue
    answer = await client.call("get_queue_url", QueueName=queue)
    url: str = answer["QueueUrl"]
    return url
