"""A program that consumes, says so on standard output, and does nothing more."""

import asyncio
import sys

import pydanube


async def main(url: str, topic: str, subscription_type: str) -> None:
    async with (
        pydanube.connect(url) as client,
        client.consumer(
            topic, subscription="s", type=subscription_type, start="earliest"
        ) as consumer,
    ):
        message = await consumer.receive()
        sys.stdout.write(message.payload.decode() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
