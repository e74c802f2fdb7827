"""When a silent member of ZooKeeper is left."""

from pydanube_zookeeper.pure.liveness import LIMIT_S_MAX, SILENCE_S, Liveness

LONGER = SILENCE_S + 0.01


def is_hung(liveness, now, opened_at=0.0, *, is_connected=True):
    return liveness.is_hung(now, opened_at=opened_at, is_connected=is_connected)


def test_a_member_that_was_asked_nothing_is_asked_and_not_left():
    liveness = Liveness(3)
    assert not is_hung(liveness, 100.0)
    assert liveness.wants_ping(100.0)
    liveness.on_request(100.0)
    assert not liveness.wants_ping(200.0)
    liveness.on_answer(100.1)
    assert not liveness.wants_ping(100.2)
    assert liveness.wants_ping(100.1 + LONGER)


def test_a_member_that_does_not_answer_is_left():
    liveness = Liveness(3)
    liveness.on_request(10.0)
    assert not is_hung(liveness, 10.0 + SILENCE_S)
    assert is_hung(liveness, 10.0 + LONGER)


def test_answers_to_earlier_requests_are_a_sign_of_life():
    liveness = Liveness(3)
    liveness.on_request(10.0)
    liveness.on_request(10.0)
    liveness.on_answer(10.5)
    assert not is_hung(liveness, 10.0 + LONGER)
    assert is_hung(liveness, 10.5 + LONGER)


def test_the_next_member_has_the_whole_time():
    liveness = Liveness(3)
    liveness.on_request(10.0)
    liveness.on_left(11.0)
    # The request waited for the connection.
    assert not is_hung(liveness, 11.5, opened_at=11.2)
    assert is_hung(liveness, 11.2 + LONGER, opened_at=11.2)


def test_a_member_that_does_not_answer_a_connection_is_left():
    liveness = Liveness(3)
    assert not is_hung(liveness, 10.5, opened_at=10.0, is_connected=False)
    assert is_hung(liveness, 10.0 + LONGER, opened_at=10.0, is_connected=False)


def test_a_slow_service_gets_more_time_until_it_is_quick_again():
    liveness = Liveness(2)
    for _ in range(2):
        assert liveness.limit_s == SILENCE_S
        liveness.on_left(0.0)
    assert liveness.limit_s == 2 * SILENCE_S
    for _ in range(20):
        liveness.on_left(0.0)
    assert liveness.limit_s == LIMIT_S_MAX
    liveness.on_request(0.0)
    liveness.on_answer(3.0)
    assert liveness.limit_s == LIMIT_S_MAX
    liveness.on_request(3.0)
    liveness.on_request(3.0)
    liveness.on_failure()
    liveness.on_answer(3.1)
    assert liveness.limit_s == SILENCE_S
