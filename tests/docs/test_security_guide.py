"""The guide to security works from top to bottom, as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from support.commands import danube
from support.processes import BrokerProcess
from support.project import ROOT
from support.secured import AUDIENCE, ISSUER, claims, jwks, signed

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (ROOT / "docs" / "guide" / "security.md").read_text()
BLOCK = re.compile(r"^```(yaml|python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[\w-]+\.(?:key|header|txt|json)\b")


def test_the_guide_works(tmp_path):
    assert f"issuer: {ISSUER}" in PAGE
    assert f"audience: {AUDIENCE}" in PAGE
    broker = BrokerProcess(tmp_path / "data", "--config", str(tmp_path / "broker.yaml"))
    (tmp_path / "keys.json").write_text(jwks())
    (tmp_path / "token.txt").write_text(signed(claims()))
    counts = dict.fromkeys(("danube", "curl", "python", "broker"), 0)

    def local(text):
        """Return *text* with the files and the ports of this test."""
        text = re.sub(r"\bcerts\b(?! init)", str(tmp_path / "certs"), text)
        text = FILE.sub(lambda found: str(tmp_path / found[0]), text)
        text = text.replace("6651", str(broker.stream_port))
        return text.replace("https://127.0.0.1:8080", broker.http_url)

    def run(line):
        program, *arguments = shlex.split(line)
        counts[program] += 1
        if program == "curl":
            key = (tmp_path / "billing.key").read_text()
            (tmp_path / "billing.header").write_text(f"x-api-key: {key}")
            done = subprocess.run(
                ["curl", "--fail-with-body", "--silent", "--show-error", *arguments],
                check=False,
                capture_output=True,
                text=True,
            )
        else:
            done = danube(*arguments, XDG_CONFIG_HOME=str(tmp_path))
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        for secret in tmp_path.glob("*.key"):
            assert secret.read_text().strip() not in done.stdout + done.stderr

    is_started = False
    try:
        for language, code in BLOCK.findall(PAGE):
            if language == "yaml":
                if is_started:
                    broker.stop()
                (tmp_path / "broker.yaml").write_text(local(code))
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
    assert counts == {"danube": 15, "curl": 2, "python": 2, "broker": 3}
