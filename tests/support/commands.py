"""`danube` commands as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

DANUBE = (sys.executable, "-m", "pydanube.cli.main")
TIMEOUT_S = 60


def environment(url: str = "", **variables: str) -> dict[str, str]:
    """Ours, without what would change a command's mind."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DANUBE_")}
    return inherited | ({"DANUBE_URL": url} if url else {}) | variables


def danube(
    *arguments: str, url: str = "", stdin: str | bytes = b"", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        [*DANUBE, *arguments],
        check=False,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment(url, **variables),
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def start_danube(
    *arguments: str, url: str = "", **variables: str
) -> subprocess.Popen[bytes]:
    """Start a command; its streams are pipes, and nothing is read ahead of us."""
    return subprocess.Popen(
        [*DANUBE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment(url, **variables),
    )


def end(process: subprocess.Popen[bytes], number: int) -> tuple[int, str, str]:
    """Send a signal and wait: exit code, output, errors."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.send_signal(number)
    # Its input stays open: it ends because of the signal, or not at all.
    out, err = process.stdout.read(), process.stderr.read()
    code = process.wait(timeout=TIMEOUT_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    return code, out.decode(), err.decode()
