"""The operations ``schemas`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.schemas import Schemas as AsyncSchemas


class Schemas(Facade):
    """See ``pydanube.Schemas``."""

    register = blocking(AsyncSchemas.register)
    submit = blocking(AsyncSchemas.submit)
    get = blocking(AsyncSchemas.get)
    latest = blocking(AsyncSchemas.latest)
    by_id = blocking(AsyncSchemas.by_id)
    versions = blocking(AsyncSchemas.versions)
    subjects = blocking(AsyncSchemas.subjects)
    describe = blocking(AsyncSchemas.describe)
    delete = blocking(AsyncSchemas.delete)
    check = blocking(AsyncSchemas.check)
    compatibility = blocking(AsyncSchemas.compatibility)
    set_compatibility = blocking(AsyncSchemas.set_compatibility)
    topic_schema = blocking(AsyncSchemas.topic_schema)
