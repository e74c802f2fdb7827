"""An HTTP server that does nothing while nobody asks it."""

import asyncio

from pydanube.aio.http_server import config_of, listener_at, serving

HOUR_S = 3600.0


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_server_that_wakes_up_every_hour_answers_and_stops_at_once():
    listener = listener_at("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with asyncio.timeout(60), serving(config_of(answer), listener, tick_s=HOUR_S):
        found = await ask(port)
    assert found.startswith(b"HTTP/1.1 200")
    assert b"\r\ndate: " in found
    assert b"hello" in found


async def test_the_date_of_answers_is_updated_at_each_tick():
    listener = listener_at("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with (
        asyncio.timeout(60),
        serving(config_of(answer), listener, tick_s=0.01),
    ):
        first = found = await ask(port)
        while found == first:
            await asyncio.sleep(0.05)
            found = await ask(port)
