"""An exclusive subscription has one consumer; see also the scenarios."""

from __future__ import annotations

import pytest

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.exclusive import ExclusiveSubscription
from pydanube.model.errors import ConsumerBusy

ANNA, BEN = 1, 2


def test_second_consumer_is_refused_and_changes_nothing():
    machine = ExclusiveSubscription(Cursor(0))
    assert machine.on_consumer_joined(ANNA, 0.0) == []
    with pytest.raises(ConsumerBusy):
        machine.on_consumer_joined(BEN, 0.0)
    assert machine.consumers == (ANNA,)
    machine.on_consumer_left(ANNA, 0.0)
    assert machine.on_consumer_joined(BEN, 0.0) == []
