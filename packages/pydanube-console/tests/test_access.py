"""The broker decides about programs that it does not know."""

import pytest

import pydanube
from pydanube.model.errors import PermissionDenied
from pydanube.security.permissions import Permission
from pydanube_console.access import CACHE_S, Access
from support.fakes.secured import bootstrap_key, secured
from support.worlds.current import memory_broker


async def test_everything_is_permitted_without_security():
    async with memory_broker() as broker, broker.connect() as client:
        access = Access(client)
        await access.require(Permission.CLUSTER_ADMIN, "cluster")
        assert await access.visible(["/default/a"]) == {"/default/a"}


@pytest.mark.slow
async def test_permissions_are_those_of_the_broker(tmp_path):
    now = 0.0
    async with secured(tmp_path) as broker:
        url = broker.stream_url
        async with pydanube.connect(url, api_key=bootstrap_key(tmp_path)) as admin:
            key = (await admin.security.create_api_key("ada")).key
            binding = await admin.security.add_binding(
                "user:ada", ["viewer"], ["/default/a"]
            )
            async with pydanube.connect(url, api_key=key) as client:
                access = Access(client, clock=lambda: now)
                topics = ["/default/a", "/default/b", "not a topic"]
                assert await access.visible(topics) == {"/default/a"}
                with pytest.raises(PermissionDenied, match="manage on /default/a"):
                    await access.require(Permission.MANAGE, "/default/a")
                await admin.security.remove_binding(binding)
                assert await access.visible(topics) == {"/default/a"}
                with pytest.raises(PermissionDenied):
                    await access.require(Permission.DESCRIBE, "/default/a")
                now = CACHE_S
                assert await access.visible(topics) == set()
