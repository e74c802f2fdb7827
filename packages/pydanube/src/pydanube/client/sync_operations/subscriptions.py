"""The operations ``subscriptions`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.subscriptions import Subscriptions as AsyncSubscriptions


class Subscriptions(Facade):
    """See ``pydanube.Subscriptions``."""

    configure = blocking(AsyncSubscriptions.configure)
    create = blocking(AsyncSubscriptions.create)
    delete = blocking(AsyncSubscriptions.delete)
    describe = blocking(AsyncSubscriptions.describe)
    report_progress = blocking(AsyncSubscriptions.report_progress)
    report_positions = blocking(AsyncSubscriptions.report_positions)
    settings = blocking(AsyncSubscriptions.settings)
    seek = blocking(AsyncSubscriptions.seek)
    skip = blocking(AsyncSubscriptions.skip)
    mark_done = blocking(AsyncSubscriptions.mark_done)
