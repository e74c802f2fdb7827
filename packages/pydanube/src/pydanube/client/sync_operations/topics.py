"""The operations ``topics`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.topics import Topics as AsyncTopics


class Topics(Facade):
    """See ``pydanube.Topics``."""

    list = blocking(AsyncTopics.list)
    places = blocking(AsyncTopics.places)
    configure = blocking(AsyncTopics.configure)
    create = blocking(AsyncTopics.create)
    delete = blocking(AsyncTopics.delete)
    describe = blocking(AsyncTopics.describe)
    list_offsets = blocking(AsyncTopics.list_offsets)
    list_changed_offsets = blocking(AsyncTopics.list_changed_offsets)
    hold = blocking(AsyncTopics.hold)
    release = blocking(AsyncTopics.release)
    find_offsets = blocking(AsyncTopics.find_offsets)
    apply_retention = blocking(AsyncTopics.apply_retention)
    plan_retention = blocking(AsyncTopics.plan_retention)
    trim = blocking(AsyncTopics.trim)
    add_partitions = blocking(AsyncTopics.add_partitions)
    existing_partitions = blocking(AsyncTopics.existing_partitions)
    partitions = blocking(AsyncTopics.partitions)
