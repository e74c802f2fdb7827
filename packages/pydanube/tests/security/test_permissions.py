"""The permissions, and which of them include others."""

from __future__ import annotations

import pytest

from pydanube.security.permissions import Permission, is_included

INCLUDED = {Permission.SCHEMA_WRITE: {Permission.SCHEMA_READ}}


@pytest.mark.parametrize("held", Permission)
@pytest.mark.parametrize("needed", Permission)
def test_permission_includes_itself_and_describe(held, needed):
    includes = {held, Permission.DESCRIBE, *INCLUDED.get(held, ())}
    assert is_included(needed, frozenset({held})) is (needed in includes)


@pytest.mark.parametrize("needed", Permission)
def test_nothing_is_included_in_no_permission(needed):
    assert not is_included(needed, frozenset())
