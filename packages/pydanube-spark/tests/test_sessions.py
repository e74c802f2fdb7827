"""The settings of a session; the session itself is in the end-to-end tests."""

import signal
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from pydanube_spark.sessions import (
    LOCAL_SETTINGS,
    NEW_SESSION_ONLY,
    SETTINGS,
    _interrupts_held,
    _output_to,
    configure,
    session,
    settings_for,
)


def test_only_local_session_has_local_settings():
    assert settings_for("local[2]", None) == SETTINGS | LOCAL_SETTINGS
    assert settings_for("spark://host:7077", None) == SETTINGS


def test_config_overrides_default_settings():
    name = "spark.sql.session.timeZone"
    assert settings_for("local", {name: "Europe/Vienna"})[name] == "Europe/Vienna"


def test_settings_of_spark_submit_override_defaults():
    name = "spark.sql.session.timeZone"
    submitted = {name: "Europe/Vienna", "spark.driver.host": "driver"}
    found = settings_for("local[2]", {"spark.ui.enabled": "true"}, submitted)
    assert not submitted.keys() & found.keys()
    assert found.keys() == (SETTINGS | LOCAL_SETTINGS).keys() - submitted.keys()
    assert found["spark.ui.enabled"] == "true"


class Conf:
    """The settings of a session, of which those in *fixed* cannot be changed."""

    def __init__(self, values, fixed=()):
        self.values = dict(values)
        self._fixed = fixed

    def get(self, name, default):
        return self.values.get(name, default)

    def set(self, name, value):
        assert self.isModifiable(name)
        self.values[name] = value

    def isModifiable(self, name):  # noqa: N802  # Spark's name.
        return name not in self._fixed


class Session:
    def __init__(self, conf):
        self.conf = conf


def test_configure_returns_settings_that_cannot_be_changed():
    sockets = "spark.python.unix.domain.socket.enabled"
    conf = Conf({"spark.sql.session.timeZone": "Europe/Vienna"}, fixed=[sockets])
    fixed = configure(Session(conf), {"spark.sql.ansi.enabled": "false"})
    assert fixed == {sockets: "true"}
    assert conf.values["spark.sql.session.timeZone"] == "UTC"
    assert conf.values["spark.sql.ansi.enabled"] == "false"
    assert not set(NEW_SESSION_ONLY) & set(conf.values)


def test_values_of_the_caller_that_cannot_be_set_are_not_logged(caplog, monkeypatch):
    key, ours = "spark.hadoop.fs.s3a.secret.key", "spark.sql.session.timeZone"
    existing = Session(Conf({}, fixed=[key, ours]))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: existing)
    assert session(config={key: "of-ada"}) is existing
    assert f"without {key}, which" in caplog.text
    assert "of-ada" not in caplog.text
    assert f"without {ours}=UTC, which" in caplog.text


def test_configure_returns_nothing_for_a_suitable_session():
    conf = Conf(SETTINGS, fixed=SETTINGS)
    assert configure(Session(conf)) == {}


def test_session_that_cannot_be_prepared_is_reported(caplog):
    class Unknown(SparkSession):
        """A session with a JVM whose internals are unknown."""

        def __init__(self):
            self._jsparkSession = object()

        conf = Conf(SETTINGS)

    assert configure(Unknown()) == {}
    assert "start them one after another" in caplog.text


def test_session_without_a_jvm_needs_no_preparation(caplog):
    configure(Session(Conf(SETTINGS)))
    assert caplog.text == ""


def test_log_file_gets_output_of_processes_started_in_the_body(tmp_path, capfd):
    log_file = tmp_path / "log"
    with _output_to(log_file):
        subprocess.run([sys.executable, "-c", "print('inside')"], check=True)
    subprocess.run([sys.executable, "-c", "print('outside')"], check=True)
    assert log_file.read_text() == "inside\n"
    assert capfd.readouterr().out == "outside\n"


def test_interrupt_takes_effect_after_the_start():
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


def test_signal_handler_installed_by_spark_stays():
    def cancel_jobs(_number, _frame):
        pass

    before = signal.getsignal(signal.SIGINT)
    try:
        with _interrupts_held():
            signal.signal(signal.SIGINT, cancel_jobs)
        assert signal.getsignal(signal.SIGINT) is cancel_jobs
    finally:
        signal.signal(signal.SIGINT, before)
