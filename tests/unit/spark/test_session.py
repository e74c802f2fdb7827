"""The settings of a session; the session itself is in the end-to-end tests."""

import signal
import subprocess
import sys

import pytest

from pydanube.spark.session import (
    LOCAL_SETTINGS,
    SETTINGS,
    _interrupts_held,
    _output_to,
    settings_for,
)


def test_a_local_session_has_local_settings_and_any_other_has_not():
    assert settings_for("local[2]", None) == SETTINGS | LOCAL_SETTINGS
    assert settings_for("spark://host:7077", None) == SETTINGS


def test_what_the_user_says_wins():
    name = "spark.sql.session.timeZone"
    assert settings_for("local", {name: "Europe/Vienna"})[name] == "Europe/Vienna"


def test_only_processes_started_meanwhile_print_to_the_log(tmp_path, capfd):
    log_file = tmp_path / "log"
    with _output_to(log_file):
        subprocess.run([sys.executable, "-c", "print('inside')"], check=True)
    subprocess.run([sys.executable, "-c", "print('outside')"], check=True)
    assert log_file.read_text() == "inside\n"
    assert capfd.readouterr().out == "outside\n"


def test_an_interrupt_has_its_effect_when_the_start_is_done():
    seen = []

    def start():
        with _interrupts_held():
            signal.raise_signal(signal.SIGINT)
            seen.append("started")

    # A session of another test may have left a handler of Spark's.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert seen == ["started"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_spark_installs_meanwhile_stays():
    def cancel_jobs(_number, _frame):
        pass

    before = signal.getsignal(signal.SIGINT)
    try:
        with _interrupts_held():
            signal.signal(signal.SIGINT, cancel_jobs)
        assert signal.getsignal(signal.SIGINT) is cancel_jobs
    finally:
        signal.signal(signal.SIGINT, before)
