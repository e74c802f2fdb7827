"""The JSON API over a whole broker of this process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydanube.broker.shards import Shards
from pydanube.model.errors import Draining, SessionLost
from pydanube.servers.http.app import ENDPOINTS, BrokerState
from pydanube.servers.http.endpoints import BODY_BYTES_MAX
from support.http_api import State, http_of
from support.shard_owners import KnownOwners

NO_LIMITS = {
    "max_producers_per_topic": 0,
    "max_subscriptions_per_topic": 0,
    "max_consumers_per_topic": 0,
    "max_consumers_per_subscription": 0,
    "max_publish_rate": 0,
    "max_subscription_dispatch_rate": 0,
    "max_message_size": 0,
}


async def test_topics_are_listed_by_pages(api):
    names = [f"/default/{each}" for each in "abc"]
    for name in names:
        await api.post("/topics", {"name": name})
    first = await api.get("/topics?limit=2")
    assert [each["name"] for each in first["topics"]] == names[:2]
    assert first["next"] == names[1]
    last = await api.get(f"/topics?limit=2&after={first['next']}")
    assert [each["name"] for each in last["topics"]] == names[2:]
    assert "next" not in last
    for limit in ("0", "-1", "x"):
        await api.get(f"/topics?limit={limit}", 400)


# Namespaces.


async def test_namespaces_are_created_listed_and_deleted(api):
    created = await api.post("/namespaces", {"name": "shop"})
    assert created == {"name": "shop", "policy": NO_LIMITS}
    listed = await api.get("/namespaces")
    assert listed == {"namespaces": ["default", "shop", "system"]}
    assert await api.get("/namespaces/shop") == created
    assert await api.delete("/namespaces/shop") is None
    error = await api.get("/namespaces/shop", 404)
    assert error["code"] == "namespace_not_found"


async def test_namespace_in_use_cannot_be_created_or_deleted(api):
    await api.post("/namespaces", {"name": "shop"})
    error = await api.post("/namespaces", {"name": "shop"}, 409)
    assert error == {
        "code": "already_exists",
        "message": "Namespace shop already exists.",
    }
    await api.post("/topics", {"name": "/shop/orders"})
    error = await api.delete("/namespaces/shop", 409)
    assert error["code"] == "namespace_in_use"


async def test_settings_of_a_namespace_change_at_once(api):
    await api.published("/default/orders", b"four")
    path = "/namespaces/default/settings"
    limit = {"age_s": None, "bytes_max": 1000, "drops_acknowledged": False}
    small = {"policy": NO_LIMITS | {"max_message_size": 4}, "retention": limit}
    assert await api.patch(path, {"policy": {}, "retention": {"bytes_max": 1000}})
    assert await api.patch(path, {"policy": {"max_message_size": 4}}) == small
    assert await api.get(path) == small
    assert (await api.get("/topics/default/orders"))["retention"] == limit
    with pytest.raises(Exception, match="exceeds maximum allowed 4"):
        await api.published("/default/orders", b"five!")
    assert (await api.patch(path, {"policy": {}}))["policy"] == NO_LIMITS
    await api.published("/default/orders", b"five!")
    # One wrong setting refuses all.
    wrong = {"policy": {"max_publish_rate": 1}, "retention": {"bytes_max": -1}}
    await api.patch(path, wrong, 400)
    assert (await api.get(path))["policy"] == NO_LIMITS
    await api.patch("/namespaces/none/settings", {"retention": {}}, 404)


# Topics.


async def test_topic_is_created_with_its_policy_and_limits(api):
    policy = {
        "dispatch": "reliable",
        "durability": "written",
        "retention": {"age_s": 60, "bytes_max": None, "drops_acknowledged": True},
        "ttl_s": 5.5,
        "on_corruption": "skip",
        "seal_bytes": 2**20,
        "seal_age_s": 60,
        "deduplication": {"age_s": 600, "messages_max": 1000},
    }
    created = await api.post(
        "/topics",
        {
            "name": "/default/orders",
            "policy": policy,
            "limits": {"max_publish_rate": 9},
        },
    )
    assert created == {
        "name": "/default/orders",
        "partitions": None,
        "topics": ["/default/orders"],
    }
    described = await api.get("/topics/default/orders")
    assert described["policy"] == policy
    assert described["limits"]["max_publish_rate"] == 9
    assert await api.get("/topics?namespace=default") == {
        "topics": [
            {
                "name": "/default/orders",
                "policy": policy,
                "broker_id": described["broker_id"],
                "shard": None,
            }
        ],
        "partitioned_topics": [],
    }
    assert (await api.get("/topics?namespace=system"))["topics"] == []
    await api.get("/topics?namespace=nobody", 404)


async def test_partitions_are_created_added_and_deleted(api):
    await api.post("/topics", {"name": "/default/clicks", "partitions": 2})
    grown = await api.put("/topics/default/clicks/partitions", {"count": 3})
    names = [f"/default/clicks-part-{number}" for number in range(3)]
    assert grown == {"name": "/default/clicks", "partitions": 3, "topics": names}
    assert await api.get("/topics/default/clicks/partitions") == grown
    listed = await api.get("/topics")
    assert [each["name"] for each in listed["topics"]] == names
    assert listed["partitioned_topics"] == [
        {"name": "/default/clicks", "partitions": 3}
    ]
    await api.put("/topics/default/clicks/partitions", {"count": 3}, 400)
    error = await api.get("/topics/default/clicks", 404)
    assert "3 partitions" in error["message"]
    await api.delete("/topics/default/clicks-part-0", 400)
    await api.delete("/topics/default/clicks")
    assert (await api.get("/topics"))["topics"] == []


async def test_topic_in_use_is_deleted_only_by_force(api):
    await api.post("/topics", {"name": "/default/orders"})
    async with api.client.producer("/default/orders"):
        error = await api.delete("/topics/default/orders", 409)
        assert error["code"] == "subscription_in_use"
        await api.delete("/topics/default/orders?force=true")
    error = await api.delete("/topics/default/orders", 404)
    assert error["code"] == "topic_not_found"


SETTINGS = "/topics/default/a/settings"


async def test_named_settings_of_a_topic_change_and_the_others_stay(api):
    await api.post("/topics", {"name": "/default/a"})
    before = await api.get(SETTINGS)
    assert (before["limits"], before["deduplication"]) == (None, None)
    changes = {
        "limits": NO_LIMITS | {"max_publish_rate": 7},
        "retention": {"age_s": 60.0, "bytes_max": None, "drops_acknowledged": True},
        "on_corruption": "skip",
        "seal_bytes": 2**20,
        "deduplication": {"age_s": 60.0, "messages_max": 100_000},
    }
    assert await api.patch(SETTINGS, changes) == before | changes
    described = await api.get("/topics/default/a")
    assert described["limits"] == changes["limits"]
    assert described["retention"] == changes["retention"]
    cleared = dict.fromkeys(["limits", "retention", "seal_bytes", "deduplication"])
    assert await api.patch(SETTINGS, cleared) == before | {"on_corruption": "skip"}
    assert (await api.get("/topics/default/a"))["limits"] == NO_LIMITS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"limits": {"max_publish_rate": -7}}, "max_publish_rate"),
        ({"retention": {"age_s": 0}}, "must be more than 0"),
        ({"seal_bytes": 1}, "65536 to 1073741824 bytes"),
        ({"deduplication": {"age_s": 0}}, "must be more than 0"),
        ({"on_corruption": "ignore"}, "ignore"),
        ({"schema": {"policy": "warn"}}, "subject"),
        ({"ttl_s": 5}, "unknown field 'ttl_s'"),
        ({}, "no setting is given; the settings that can change are limits"),
    ],
)
async def test_one_wrong_setting_of_a_topic_refuses_all(api, changes, said):
    await api.post("/topics", {"name": "/default/a"})
    before = await api.get(SETTINGS)
    more = {"seal_age_s": 60.0} if changes else {}
    refused = await api.patch(SETTINGS, more | changes, 400)
    assert said in refused["message"]
    assert await api.get(SETTINGS) == before
    await api.patch("/topics/default/none/settings", {"limits": None}, 404)


async def test_retention_is_planned_and_applied(api):
    await api.post("/topics", {"name": "/default/a"})
    for method in ("GET", "POST"):
        drops = await api.ask(method, "/topics/default/a/retention/drops")
        assert (drops["segment_count"], drops["base_offset"]) == (0, 0)


# Subscriptions.


async def test_subscriptions_are_created_described_and_deleted(api):
    await api.published("/default/orders", b"1", b"2")
    path = "/topics/default/orders/subscriptions"
    new = {"name": "billing", "type": "shared", "start": "earliest"}
    created = await api.post(path, new)
    assert created == {"name": "billing", "topics": ["/default/orders"]}
    described = await api.get(f"{path}/billing")
    assert (described["type"], described["backlog"]) == ("shared", 2)
    listed = await api.get(path)
    assert listed == {"subscriptions": [described]}
    error = await api.post(path, new, 409)
    assert error["code"] == "already_exists"
    await api.delete(f"{path}/billing")
    error = await api.get(f"{path}/billing", 404)
    assert error["code"] == "subscription_not_found"


async def test_subscription_with_consumers_is_deleted_only_by_force(api):
    await api.post("/topics", {"name": "/default/orders"})
    path = "/topics/default/orders/subscriptions/billing"
    async with api.client.consumer("/default/orders", subscription="billing"):
        await api.delete(path, 409)
        await api.delete(f"{path}?force=true")
        await api.delete(path, 404)


async def test_changes_of_a_partitioned_topic_apply_to_all_partitions(api):
    await api.post("/topics", {"name": "/default/clicks", "partitions": 2})
    path = "/topics/default/clicks/subscriptions"
    created = await api.post(path, {"name": "billing"})
    names = ["/default/clicks-part-0", "/default/clicks-part-1"]
    assert created["topics"] == names
    await api.patch(f"{path}/billing/settings", {"is_paused": True})
    for name in names:
        described = await api.get(f"/topics{name}/subscriptions/billing")
        assert described["is_paused"]
    await api.get(f"{path}/billing", 404)
    await api.delete(f"{path}/billing")
    assert await api.get(f"/topics{names[1]}/subscriptions") == {"subscriptions": []}


async def test_named_settings_of_a_subscription_change_and_the_others_stay(api):
    await api.post("/topics", {"name": "/default/orders"})
    path = "/topics/default/orders/subscriptions/later/settings"
    usual = {"failure_policy": None, "limits": None, "is_paused": False}
    assert await api.get(path) == usual
    wanted = {
        "failure_policy": {"redeliveries_max": 3, "poison": "drop"},
        "limits": {"unacked_messages_max": 5},
    }
    answer = await api.patch(path, wanted)
    assert answer == await api.get(path)
    assert answer["failure_policy"]["redeliveries_max"] == 3
    assert answer["failure_policy"]["ack_timeout_s"] == 30.0
    assert answer["limits"]["unacked_messages_max"] == 5
    assert await api.patch(path, {"is_paused": True}) == answer | {"is_paused": True}
    assert await api.patch(path, usual) == usual
    refused = await api.patch(path, {}, 400)
    assert "no setting is given" in refused["message"]


async def test_seek_and_skip_move_the_cursor(api):
    await api.published("/default/orders", b"1", b"2", b"3")
    path = "/topics/default/orders/subscriptions"
    await api.post(path, {"name": "billing", "start": 1})
    assert (await api.get(f"{path}/billing"))["cursor"] == 1

    async def cursor_after(action, body):
        answer = await api.post(f"{path}/billing/{action}", body, 200)
        return answer["cursor"]

    assert await cursor_after("seek", {"to": "latest"}) == 3
    assert await cursor_after("seek", {"to": 0}) == 0
    assert await cursor_after("skip", {"count": 2}) == 2
    assert await cursor_after("seek", {"to": "2001-01-01T00:00:00Z"}) == 0
    assert await cursor_after("seek", {"to": "2200-01-01T00:00:00Z"}) == 3
    await api.post(f"{path}/billing/seek", {"to": 9}, 400)
    await api.post(f"{path}/billing/seek", {"to": "newest"}, 400)
    await api.post(f"{path}/billing/seek", {"to": "2001-13-01"}, 400)
    await api.post(f"{path}/nobody/seek", {"to": 0}, 404)


async def test_subscriptions_of_non_reliable_topics_have_no_settings(api):
    policy = {"dispatch": "non_reliable"}
    await api.post("/topics", {"name": "/default/ticks", "policy": policy})
    path = "/topics/default/ticks/subscriptions/billing/settings"
    error = await api.patch(path, {"failure_policy": {"poison": "drop"}}, 400)
    assert "reliable topics" in error["message"]


# Every request.


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/namespaces", {}, "missing required field name"),
        ("/namespaces", {"name": 5}, "request.name"),
        ("/namespaces", {"name": "two words"}, "two words"),
        ("/namespaces", {"name": "x", "polcy": {}}, "request: unknown field 'polcy'"),
        (
            "/namespaces",
            {"name": "x", "policy": {"max": 1}},
            "request.policy: unknown field 'max'",
        ),
        ("/namespaces", [], "Expected object, got array"),
        ("/topics", {"name": "orders"}, "invalid format"),
        ("/topics", {"name": "/default/x", "policy": {"dispatch": "?"}}, "dispatch"),
        ("/topics", {"name": "/default/x", "partitions": 0}, "1 to 4096"),
        ("/topics", {"name": "/default/x", "partitions": 2**63}, "has 64 bits"),
        (
            "/topics",
            {"name": "/default/x", "policy": {"retention": {"age_s": 10**400}}},
            "request.policy.retention.age_s: an integer has 64 bits",
        ),
    ],
)
async def test_invalid_body_is_refused_with_the_field(api, path, body, said):
    error = await api.post(path, body, 400)
    assert error["code"] in {"invalid_request", "invalid_name"}
    assert said in error["message"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b'{"name": "\xc3("}', b'{"name": "\\ud800"}', b"[" * 100_000],
)
async def test_body_that_is_not_json_is_refused(api, content):
    headers = {"content-type": "application/json; charset=utf-8"}
    await api.ask("POST", "/topics", status=400, content=content, headers=headers)


async def test_request_with_another_content_type_is_refused(api):
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        error = await api.ask(
            "POST",
            "/topics",
            status=400,
            content=b'{"name": "/default/orders"}',
            headers={"content-type": kind},
        )
        assert "application/json" in error["message"]
    await api.ask("PATCH", SETTINGS, status=400)
    assert (await api.get("/topics"))["topics"] == []


async def test_too_long_request_is_refused(api):
    error = await api.post("/namespaces", {"name": "x" * BODY_BYTES_MAX}, 413)
    assert error["code"] == "message_too_large"


async def test_unknown_paths_and_methods_are_answered_with_json(api):
    assert (await api.get("/nothing", 404))["code"] == "not_found"
    assert (await api.put("/topics", {}, 405))["code"] == "invalid_request"


async def test_names_with_special_characters_are_quoted_in_paths(api):
    await api.post("/topics", {"name": "/default/Łódź"})
    path = "/topics/default/%C5%81%C3%B3d%C5%BA/subscriptions"
    await api.post(path, {"name": "50 % ?"})
    assert (await api.get(f"{path}/50%20%25%20%3F"))["subscription"] == "50 % ?"


async def test_requests_are_unavailable_while_the_broker_starts():
    async with http_of(State()) as http:
        answer = await http.get("/api/v1/namespaces")
    assert answer.status_code == 503
    assert answer.json() == {
        "code": "unavailable",
        "message": "the broker is starting",
    }


async def test_a_broker_whose_session_is_over_says_so_and_not_that_it_stops(broker):
    failures = []

    def check_session() -> None:
        if failures:
            raise failures[0]

    clustered = replace(broker.broker, shards=Shards(1, KnownOwners(check_session)))
    state = BrokerState()
    state.on_serving(clustered, broker.server, ())
    async with http_of(state) as http:
        assert (await http.get("/readyz")).status_code == 200
        failures.append(SessionLost("session s of this broker in the cluster is over"))
        state.on_stopping()
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "code": SessionLost.code,
        "message": str(failures[0]),
    }
    assert Draining.code != SessionLost.code


async def test_bug_fails_only_one_request(broker):
    class Broken:
        quotas = broker.broker.quotas

        async def namespace_names(self):
            raise RuntimeError("oops")

    async with http_of(State(Broken())) as http:
        answer = await http.get("/api/v1/namespaces")
    assert answer.status_code == 500
    assert answer.json()["code"] == "broker_error"


async def test_openapi_document_describes_every_endpoint(api):
    document = await api.get("/openapi.json")
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert described == {(each.method, each.path) for each in ENDPOINTS}
    create = document["paths"]["/topics"]["post"]
    assert create["summary"] == "Create a topic or a partitioned topic."
    assert create["x-permission"] == "create"
    assert list(create["responses"]) == ["201", "default"]
    body = create["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].removeprefix("#/components/schemas/")
    schemas = document["components"]["schemas"]
    assert "partitions" in schemas[name]["properties"]
    describe = document["paths"]["/topics/{namespace}/{topic}"]["get"]
    answer = describe["responses"]["200"]["content"]["application/json"]["schema"]
    name = answer["$ref"].removeprefix("#/components/schemas/")
    assert "subscriptions" in schemas[name]["properties"]
    delete = document["paths"]["/topics/{namespace}/{topic}"]["delete"]
    assert "content" not in delete["responses"]["204"]
