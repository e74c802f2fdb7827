"""The bodies of requests are bounded, each alone and all together."""

from collections import deque

import pytest

pytest.importorskip("starlette")

from starlette.requests import Request

from pydanube_connect.sources.http_listener import (
    Admission,
    ListenerOptions,
    Refused,
)


def request_of(*chunks):
    remaining = deque(chunks)

    async def receive():
        body = remaining.popleft()
        return {"type": "http.request", "body": body, "more_body": bool(remaining)}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def test_bodies_of_requests_at_the_same_time_are_bounded_together():
    options = ListenerOptions(body_bytes_max="10B")
    admission = Admission(options, held_bytes_max=15)
    async with admission.admitted(request_of(b"x" * 6, b"y" * 4)) as body:
        assert body == b"x" * 6 + b"y" * 4
        with pytest.raises(Refused, match="more than 15 bytes") as refused:
            async with admission.admitted(request_of(b"x" * 5, b"y")):
                pass
        assert (refused.value.status, refused.value.headers) == (
            503,
            {"retry-after": "1"},
        )
        # What a refused request has sent does not count any more.
        async with admission.admitted(request_of(b"x" * 5)) as second:
            assert second == b"x" * 5
    async with (
        admission.admitted(request_of(b"x" * 10)),
        admission.admitted(request_of(b"x" * 5)),
    ):
        pass


async def test_one_body_may_have_what_its_option_permits():
    admission = Admission(ListenerOptions(body_bytes_max="10B"), held_bytes_max=1)
    async with admission.admitted(request_of(b"x" * 10)) as body:
        assert len(body) == 10
    with pytest.raises(Refused, match="more than 10 bytes"):
        async with admission.admitted(request_of(b"x" * 11)):
            pass
