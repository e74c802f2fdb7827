"""How long attempts may take."""

from pydanube_broker.metadata.etcd.attempts import ATTEMPT_S, Attempts


def test_each_member_gets_a_short_attempt_at_once():
    attempts = Attempts(now=10.0, timeout_s=10.0, member_count=3)
    for _ in range(2):
        assert attempts.attempt_s(10.0) == ATTEMPT_S
        attempts.on_failure()
        assert attempts.pause_s() == 0
    attempts.on_failure()
    assert attempts.pause_s() > 0


def test_later_rounds_have_longer_attempts():
    attempts = Attempts(now=0.0, timeout_s=100.0, member_count=2)
    found = []
    for _ in range(6):
        found.append(attempts.attempt_s(0.0))
        attempts.on_failure()
    assert found == [1, 1, 2, 2, 4, 4]


def test_an_attempt_ends_at_the_deadline():
    attempts = Attempts(now=0.0, timeout_s=10.0, member_count=1)
    assert attempts.attempt_s(9.5) == 0.5
    assert attempts.attempt_s(11.0) == 0


def test_pauses_are_bounded():
    attempts = Attempts(now=0.0, timeout_s=1e9, member_count=1)
    for _ in range(10_000):
        attempts.on_failure()
    assert attempts.pause_s() == 0.5
