"""The settings of a session; the session itself is in the end-to-end tests."""

import subprocess
import sys

from pydanube.spark.session import LOCAL_SETTINGS, SETTINGS, _output_to, settings_for


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
