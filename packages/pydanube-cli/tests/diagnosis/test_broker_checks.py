"""The clock of a broker is judged by what its answer proves."""

from pydanube_cli.diagnosis.broker_checks import skew_of


def test_an_answer_that_took_long_is_no_skew():
    assert skew_of(101.0, begun_at_s=100.5, ended_at_s=109.0) == 0


def test_skew_is_what_the_duration_of_the_request_cannot_explain():
    assert skew_of(120.0, begun_at_s=100.0, ended_at_s=105.0) == 15
    assert skew_of(90.0, begun_at_s=100.0, ended_at_s=105.0) == -10
