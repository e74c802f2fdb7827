"""Requests that name files, directories and servers in every field."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor

from pydanube.model.errors import BrokerError
from pydanube.wire.native.kinds import OPERATIONS
from support.fakes.directories import publish, serving

TOPIC = "/default/orders"
WITHOUT_CHANNEL = [kind for kind in sorted(OPERATIONS) if not kind.on_channel]


def filled(body, place):
    """Return a request with *place* in every text, except in the name of a topic."""
    message = body()
    for field in body.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_BOOL:
            setattr(message, field.name, True)
        elif field.message_type and field.message_type.GetOptions().map_entry:
            getattr(message, field.name).update({"root": place, "root_file": place})
        elif field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            is_topic = field.name == "topic"
            setattr(message, field.name, TOPIC if is_topic else place)
    return message


@pytest.mark.parametrize("form", ["fs://{}", "file://{}", "{}", "../../probe"])
@pytest.mark.parametrize("is_positioned", [True, False])
async def test_no_request_opens_a_place_that_it_names(tmp_path, form, is_positioned):
    probe = tmp_path / "probe"
    settings = {
        "storage__remote__url": f"fs://{tmp_path}/remote",
        "storage__seal_age_s": 0.0,
        "storage__seal_interval_s": 0.001,
    }
    async with serving(tmp_path / "data", **settings) as client:
        await publish(client, TOPIC, b"0")
        failed = []
        for kind in WITHOUT_CHANNEL:
            request = filled(kind.body, form.format(probe))
            if not is_positioned and getattr(request, "after", 0) == form.format(probe):
                request.after = ""
            try:
                await client.requester.send_request(request)
            except BrokerError as error:
                failed += [kind] if error.code == "internal" else []
        assert failed == []
        assert not (await client.storage.describe_backup()).id
    assert not probe.exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "remote"]
