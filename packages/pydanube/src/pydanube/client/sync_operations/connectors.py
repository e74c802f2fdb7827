"""The operations ``connectors`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.connectors import Connectors as AsyncConnectors


class Connectors(Facade):
    """See ``pydanube.Connectors``."""

    list = blocking(AsyncConnectors.list)
    describe = blocking(AsyncConnectors.describe)
    set = blocking(AsyncConnectors.set)
    delete = blocking(AsyncConnectors.delete)
    pause = blocking(AsyncConnectors.pause)
    resume = blocking(AsyncConnectors.resume)
    restart = blocking(AsyncConnectors.restart)
    report = blocking(AsyncConnectors.report)
