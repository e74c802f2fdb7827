"""The interpreter that Spark uses in tests behaves like Python."""

import os
import signal
import subprocess

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TELL = """\
import os, pathlib, sys

print(__name__, sys.argv[1:], os.environ["COLOUR"], pathlib.Path.cwd().name)
print(sys.stdin.read(), "pyspark.worker" in sys.modules)
print("an error", file=sys.stderr)
sys.exit(7)
"""

WAIT = """\
import os, signal

print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def run(python, tmp_path):
    """Start a module whose source is given."""

    def start(source, *arguments):
        (tmp_path / "given.py").write_text(source)
        return subprocess.Popen(
            [python, "-m", "given", *arguments],
            cwd=tmp_path,
            env=os.environ | {"COLOUR": "red"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def test_module_has_the_arguments_environment_directory_and_streams(run, tmp_path):
    process = run(TELL, "one", "two words")
    printed, errors = process.communicate("some input")
    assert printed.splitlines() == [
        f"__main__ ['one', 'two words'] red {tmp_path.name}",
        "some input True",
    ]
    assert errors == "an error\n"
    assert process.returncode == 7


def test_failure_is_printed(run):
    process = run("raise ValueError('broken')")
    _, errors = process.communicate()
    assert "ValueError: broken" in errors
    assert process.returncode == 1


def test_signal_of_the_process_ends_the_program(run):
    process = run(WAIT)
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.communicate()
    assert process.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_process_ends_with_the_program(run, number):
    process = run(WAIT)
    process.stdout.readline()
    process.send_signal(number)
    # The end of the output: nobody has it open any more.
    assert process.communicate() == ("", "")
    assert process.returncode == -number


def test_other_arguments_run_the_real_interpreter(python):
    command = [python, "-c", "import sys; print('pyspark' in sys.modules)"]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"False\n"
