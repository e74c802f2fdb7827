"""The operations ``security`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.security import Security as AsyncSecurity


class Security(Facade):
    """See ``pydanube.Security``."""

    who_am_i = blocking(AsyncSecurity.who_am_i)
    check_access = blocking(AsyncSecurity.check_access)
    roles = blocking(AsyncSecurity.roles)
    set_role = blocking(AsyncSecurity.set_role)
    delete_role = blocking(AsyncSecurity.delete_role)
    bindings = blocking(AsyncSecurity.bindings)
    add_binding = blocking(AsyncSecurity.add_binding)
    release_query = blocking(AsyncSecurity.release_query)
    remove_binding = blocking(AsyncSecurity.remove_binding)
    create_api_key = blocking(AsyncSecurity.create_api_key)
    api_keys = blocking(AsyncSecurity.api_keys)
    revoke_api_key = blocking(AsyncSecurity.revoke_api_key)
    rotate_api_key = blocking(AsyncSecurity.rotate_api_key)
    set_quota = blocking(AsyncSecurity.set_quota)
    remove_quota = blocking(AsyncSecurity.remove_quota)
    quotas = blocking(AsyncSecurity.quotas)
    describe_quota = blocking(AsyncSecurity.describe_quota)
