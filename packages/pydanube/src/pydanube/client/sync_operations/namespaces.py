"""The operations ``namespaces`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.namespaces import Namespaces as AsyncNamespaces


class Namespaces(Facade):
    """See ``pydanube.Namespaces``."""

    list = blocking(AsyncNamespaces.list)
    configure = blocking(AsyncNamespaces.configure)
    create = blocking(AsyncNamespaces.create)
    delete = blocking(AsyncNamespaces.delete)
    describe = blocking(AsyncNamespaces.describe)
    apply_retention = blocking(AsyncNamespaces.apply_retention)
    plan_retention = blocking(AsyncNamespaces.plan_retention)
