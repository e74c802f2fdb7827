"""The operations ``storage`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.storage import Storage as AsyncStorage


class Storage(Facade):
    """See ``pydanube.Storage``."""

    describe = blocking(AsyncStorage.describe)
    describe_all = blocking(AsyncStorage.describe_all)
    upload = blocking(AsyncStorage.upload)
    evict = blocking(AsyncStorage.evict)
    verify = blocking(AsyncStorage.verify)
    copy = blocking(AsyncStorage.copy)
    segments = blocking(AsyncStorage.segments)
    list_segments = blocking(AsyncStorage.list_segments)
    replace_segments = blocking(AsyncStorage.replace_segments)
    create_backup = blocking(AsyncStorage.create_backup)
    describe_backup = blocking(AsyncStorage.describe_backup)
