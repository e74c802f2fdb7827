"""The examples of a page of documentation, run as they stand."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack, chdir

from support.drivers.command_lines import OUTPUT_FILE
from support.drivers.commands import danube, end, logging_restored, start_danube
from support.project import ROOT
from support.servers.processes import BrokerProcess

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
URL = "danube://127.0.0.1:6651"
TIMEOUT_S = 180

# The broker of the test stands for the one that the page starts, and the tests
# do not run themselves.
NOT_RUN = ("danube broker", "danube console", "make ", "pip ", "DANUBE_LISTEN")

CURL = ["curl", "--fail-with-body", "--silent", "--show-error"]


def run_here(code, _url, directory):
    """Run *code* in this process, which has imported what it needs."""
    with chdir(directory), logging_restored():
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})


def run_program(code, url, directory):
    """Run *code* in a process of its own, as programs with Spark need it."""
    execute([sys.executable, "-c", connecting_to(url, code)], directory, url)


def run_page(page, directory, run_python=run_here):
    """Run every example of *page*, top to bottom, with a broker in *directory*."""
    config = directory / "broker.yaml"
    config.write_text(json.dumps({"stores": stores_in(directory)}))
    with BrokerProcess(directory / "data", "--config", str(config)) as broker:
        text = at(broker, page_text(page))
        run_blocks(page, text, broker.url, directory, run_python)


def run_page_here(page, url, directory):
    """Run every example of *page* with a running broker at *url*."""
    run_blocks(page, page_text(page), url, directory, run_here)


def run_blocks(page, text, url, directory, run_python):
    blocks = BLOCK.findall(text)
    assert blocks
    for language, code in blocks:
        if language == "python":
            assert URL in code or "connect()" in code or "memory_broker" in code
            run_python(connecting_to(url, code), url, directory)
        else:
            run_bash(code, url, directory)


def page_text(page):
    return (ROOT / page).read_text()


def stores_in(directory):
    """The stores that the guides name, as directories below *directory*."""
    paths = {
        "backups": "backups",
        "backup-segments": "backups/segments",
        "new-history": "new-history",
    }
    return {name: {"url": f"fs://{directory}/{path}"} for name, path in paths.items()}


def run_commands(page, broker, directory):
    """Run every command of *page*, but no Python, with a running *broker*."""
    blocks = [
        code
        for kind, code in BLOCK.findall((ROOT / page).read_text())
        if kind == "bash"
    ]
    assert blocks
    for code in blocks:
        run_bash(at(broker, code), broker.url, directory)


def at(broker, text):
    """*text* with the addresses of *broker* in it, instead of the usual ones."""
    addresses = {
        "http://127.0.0.1:6650": broker.grpc_url,
        "http://127.0.0.1:8080": broker.http_url,
        "/var/backups/danube": str(broker.data_dir.parent / "backups"),
    }
    for usual, own in addresses.items():
        text = text.replace(usual, own)
    return text


def connecting_to(url, code):
    """*code* that connects to *url* instead of the usual address."""
    return (
        code.replace(URL, url)
        .replace("pydanube.connect()", f"pydanube.connect({url!r})")
        .replace("sync.connect()", f"sync.connect({url!r})")
    )


def run_bash(code, url, directory):
    """Run the commands of a block; those that end with & run beside the following."""
    with ExitStack() as background:
        for line in code.splitlines():
            if line.endswith(" &"):
                program, *arguments = shlex.split(line.removesuffix(" &"))
                assert program == "danube"
                background.callback(
                    end, start_danube(*arguments, url=url), signal.SIGINT
                )
            elif line and not line.startswith(NOT_RUN):
                output = ""
                for command in OUTPUT_FILE.sub("", line).split(" | "):
                    output = run_command(command, url, directory, output)
                if (file := OUTPUT_FILE.search(line)) is not None:
                    (directory / file[1]).write_text(output)


def run_command(command, url, directory, given):
    """Run *command* with the input *given*, and return its output."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "danube":
        with chdir(directory):
            done = danube(*arguments, url=url, stdin=given)
        check(done)
        return done.stdout
    assert program in {"curl", "printf"}
    words = CURL if program == "curl" else [program]
    return execute([*words, *arguments], directory, url)


def execute(command, directory, url):
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"DANUBE_URL": url, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    check(done)
    return done.stdout


def check(done):
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
