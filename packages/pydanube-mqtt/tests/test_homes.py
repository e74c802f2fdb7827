"""Each client has one home among the processes."""

from __future__ import annotations

from collections import Counter

from pydanube_mqtt.pure.homes import home_of, id_at_home

IDS = [f"device-{number}" for number in range(1000)]


def test_homes_are_all_processes_about_equally():
    for count in (1, 2, 3, 8):
        homes = Counter(home_of(each, count) for each in IDS)
        assert sorted(homes) == list(range(1, count + 1))
        assert max(homes.values()) < 1.5 * min(homes.values())


def test_id_at_home_is_the_first_one_there():
    for number in range(1, 9):
        found = id_at_home(IDS, number, 8)
        assert home_of(found, 8) == number
        before = IDS[: IDS.index(found)]
        assert all(home_of(each, 8) != number for each in before)
