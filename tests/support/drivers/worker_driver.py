"""
A program with a worker: ``worker_driver.py URL TOPIC NUMBER [hang]``.

It waits for a line at this message and all later ones, or never returns from it.
"""

import asyncio
import sys
import threading

import pydanube


def say(*words: object) -> None:
    # In one piece, because threads call it.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(url: str, topic: str, slow: int, *, hangs: bool) -> None:
    async with pydanube.connect(url) as client:
        worker = client.worker(
            topic, subscription="billing", start="earliest", concurrency=4
        )

        released = asyncio.Event()

        async def work(number: int, message: pydanube.Message) -> None:
            say("begin", number, message.attempt)
            if number == slow:
                await asyncio.to_thread(sys.stdin.readline)
                released.set()
            if 0 <= slow < number:
                await released.wait()
            say("end", number)

        def hang(number: int, message: pydanube.Message) -> None:
            say("begin", number, message.attempt)
            if number == slow:
                threading.Event().wait()
            say("end", number)

        worker(hang if hangs else work)
        await client.run_workers(stop_timeout_s=0.1 if hangs else 600)
        say("stopped")


if __name__ == "__main__":
    url, topic, number, *rest = sys.argv[1:]
    asyncio.run(main(url, topic, int(number), hangs=rest == ["hang"]))
