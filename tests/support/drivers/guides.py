"""Guides that start a broker of their own, with settings of theirs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import Counter

from support.drivers.commands import danube
from support.project import ROOT
from support.servers.processes import BrokerProcess

BLOCK = re.compile(r"^```(yaml|python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_guide(page, directory, *, replace=lambda text: text, before=lambda line: None):
    """
    Run everything on *page*, from top to bottom, and return the counts of what ran.

    Settings are those of the broker, which restarts if they change.  *replace* changes
    the text, for example the names of files; *before* is called before each command.
    No output may contain the content of a file that ends in ``.key``.
    """
    settings = directory / "broker.yaml"
    broker = BrokerProcess(directory / "data", "--config", str(settings))
    counts = Counter()

    def local(text):
        """Return *text* with the files and the ports of this run."""
        text = re.sub(r"\bcerts\b(?! init)", str(directory / "certs"), replace(text))
        text = text.replace("6651", str(broker.stream_port))
        return text.replace("https://127.0.0.1:8080", broker.http_url)

    def run(line):
        program, *arguments = shlex.split(line)
        counts[program] += 1
        before(line)
        if program == "curl":
            done = subprocess.run(
                ["curl", "--fail-with-body", "--silent", "--show-error", *arguments],
                check=False,
                capture_output=True,
                text=True,
            )
        else:
            assert program == "danube"
            done = danube(*arguments, XDG_CONFIG_HOME=str(directory))
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        for secret in directory.glob("*.key"):
            assert secret.read_text().strip() not in done.stdout + done.stderr

    is_started = False
    try:
        for language, code in BLOCK.findall((ROOT / page).read_text()):
            if language == "yaml":
                if is_started:
                    broker.stop()
                settings.write_text(local(code))
                if is_started:
                    broker.start()
                    counts["broker"] += 1
            elif language == "python":
                subprocess.run([sys.executable, "-c", local(code)], check=True)
                counts["python"] += 1
            elif code.startswith("danube broker"):
                broker.start()
                is_started = True
                counts["broker"] += 1
            else:
                for line in local(code).splitlines():
                    run(line)
    finally:
        if is_started:
            broker.stop()
    return counts
