"""Tests of what follows when the process of a pipeline has ended."""

import signal
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cronsim")

from pydanube.model.retry import RetryPolicy
from pydanube.pipelines.restarts import Cause, NextStart, RestartRules
from pydanube.pipelines.schedules import parse_schedule

NOW = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
KILLED = -signal.SIGKILL
FAILED = 1
POLICY = RetryPolicy(10.0, 60.0, 3)
HOURLY = parse_schedule("0 * * * *", "UTC")


def later(seconds, cause=Cause.FAILURE):
    return NextStart(NOW + timedelta(seconds=seconds), cause)


@pytest.mark.parametrize("code", [FAILED, KILLED, 8])
def test_a_failed_process_is_restarted_with_growing_delays(code):
    rules = RestartRules(policy=POLICY)
    delays = [rules.after(code, failures, NOW) for failures in (1, 2, 3, 4)]
    assert delays == [later(10), later(20), later(40), None]


@pytest.mark.parametrize("code", [0, 2, 3, 4, 6, 130, 143])
def test_success_a_permanent_failure_and_a_stop_end_the_run(code):
    assert RestartRules(policy=POLICY).after(code, 1, NOW) is None


def test_without_a_policy_nothing_is_restarted():
    assert RestartRules().after(KILLED, 1, NOW) is None


def test_a_schedule_goes_on_after_success_and_after_the_last_restart():
    rules = RestartRules(policy=POLICY, schedule=HOURLY)
    scheduled = later(1800, Cause.SCHEDULE)
    assert rules.first(NOW) == scheduled
    assert rules.after(0, 0, NOW) == scheduled
    assert rules.after(FAILED, 1, NOW) == later(10)
    assert rules.after(FAILED, 4, NOW) == scheduled
    assert rules.after(2, 1, NOW) == scheduled


def test_without_a_schedule_the_first_process_starts_now():
    assert RestartRules(policy=POLICY).first(NOW) == later(0, Cause.FIRST)


def test_success_and_a_long_run_end_the_row_of_failures():
    rules = RestartRules(policy=POLICY, reset_after_s=600.0)
    assert rules.failures_after(FAILED, 2, 599.0) == 3
    assert rules.failures_after(FAILED, 2, 600.0) == 1
    assert rules.failures_after(0, 2, 1.0) == 0


def test_times_that_pass_during_a_run_are_skipped():
    rules = RestartRules(schedule=HOURLY)
    assert rules.skipped(NOW, NOW + timedelta(hours=3)) == 3
    assert RestartRules().skipped(NOW, NOW + timedelta(hours=3)) == 0
