"""Calls go on to members that answer."""

from pydanube_broker.metadata.etcd.members import AVOID_S, Members


def test_next_member_gets_the_calls_of_one_that_refuses():
    members = Members(3)
    found = []
    for _ in range(4):
        assert members.leave(members.present, 0.0, is_silent=False)
        found.append(members.present)
    assert found == [1, 2, 0, 1]


def test_silent_member_is_avoided_while_the_others_know_no_leader():
    members = Members(3)
    members.leave(0, 0.0, is_silent=True)
    found = []
    for _ in range(3):
        members.leave(members.present, 1.0, is_silent=False)
        found.append(members.present)
    assert found == [2, 1, 2]
    members.leave(2, AVOID_S, is_silent=False)
    assert members.present == 0


def test_member_that_answers_is_not_avoided():
    members = Members(2)
    members.leave(0, 0.0, is_silent=True)
    members.on_answer(0)
    members.leave(1, 0.0, is_silent=False)
    assert members.present == 0


def test_next_member_gets_the_calls_if_all_are_silent():
    members = Members(3)
    for member in range(3):
        assert members.present == member
        members.leave(member, 0.0, is_silent=True)
    assert members.present == 0


def test_late_failure_of_another_member_changes_nothing():
    members = Members(3)
    members.leave(0, 0.0, is_silent=True)
    assert not members.leave(0, 0.0, is_silent=True)
    assert members.present == 1


def test_member_is_known_when_it_has_answered():
    members = Members(3)
    assert members.is_known
    members.leave(0, 0.0, is_silent=True)
    members.on_answer(0)
    assert not members.is_known
    members.on_answer(1)
    assert members.is_known


def test_single_member_stays():
    members = Members(1)
    assert members.leave(0, 0.0, is_silent=True)
    assert members.present == 0
