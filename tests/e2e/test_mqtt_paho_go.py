"""The functional verification tests of Paho's Go client pass against a broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

MODULE = "github.com/eclipse/paho.mqtt.golang@v1.5.1"
TESTS = (
    *("Start", "Disconnect", "Publish_1", "Publish_2", "Publish_3", "Subscribe"),
    *("Will", "Binary_Will", "CleanSession", "CallbackOverrun", "MultipleURLs"),
    *(
        f"p{published}s{subscribed}"
        for published in range(3)
        for subscribed in range(3)
    ),
    *("PublishMessage", "PublishEmptyMessage", "ping1_idle5", "autoreconnect"),
    *("cleanUpMids", "cleanUpMids_2", "ConnectRetry", "ConnectRetryPublish"),
    *("ResumeSubs", "ResumeSubsWithReconnect", "ResumeSubsMaxInflight"),
    *("DisconnectWhileProcessingIncomingPublish", "Ack_After_Disconnect"),
)
"""All tests with a broker but one: it has a topic of 65,535 bytes."""


def go(*arguments, directory):
    """Run a command of Go, and return its output."""
    program = shutil.which("go")
    assert program, "this test needs Go"
    done = subprocess.run(
        [program, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GOFLAGS": "-mod=mod"},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout


def test_the_tests_of_paho_pass(tmp_path):
    found = json.loads(go("mod", "download", "-json", MODULE, directory=tmp_path))
    module = tmp_path / "module"
    shutil.copytree(found["Dir"], module)
    for path in (module, *module.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    with BrokerProcess(tmp_path / "data", "--mqtt-port", "0") as broker:
        addresses = module / "fvt_test.go"
        text = addresses.read_text().replace('":1883"', f'":{broker.mqtt_port}"')
        addresses.write_text(text)
        pattern = f"^Test_({'|'.join(TESTS)})$"
        output = go("test", "-v", "-timeout", "240s", "-run", pattern, directory=module)
    assert output.count("--- PASS") == len(TESTS)
