"""An MQTT broker: Mosquitto, which keeps sessions over crashes."""

from __future__ import annotations

import subprocess

from support.servers.ports import free_port
from support.servers.programs import required_program

CONFIG = """
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
log_dest stderr
sys_interval 1
"""


class MosquittoProcess:
    """``mosquitto`` on a free port."""

    def __init__(self, directory) -> None:
        self.port = free_port()
        self._file = directory / "mosquitto.conf"
        self._file.write_text(CONFIG.format(port=self.port))
        self._process = None

    def __enter__(self) -> MosquittoProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        program = required_program("mosquitto", "mosquitto")
        self._process = subprocess.Popen(
            [program, "-c", str(self._file)], stderr=subprocess.PIPE, text=True
        )
        for line in self._process.stderr:
            if "running" in line:
                return
        raise AssertionError("Mosquitto did not start")

    def kill(self) -> None:
        """End it as a crash would; sessions are lost."""
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()
