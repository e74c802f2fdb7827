"""An OpenSearch server of one node, which can be killed."""

from __future__ import annotations

import json
import subprocess
import time

import httpx

from support.project import ROOT
from support.servers.ports import free_port

HOME = ROOT / ".venv" / "opensearch"
START_TIMEOUT_S = 240
_LOGS = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class OpensearchProcess:
    """OpenSearch, from the jars that ``tools/opensearch`` has fetched."""

    def __init__(self, directory, **settings) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._directory = directory / "opensearch"
        self._directory.mkdir()
        (self._directory / "log4j2.properties").write_text(_LOGS)
        found = {
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": free_port(),
            "path.data": str(self._directory / "data"),
            "path.logs": str(self._directory),
            "cluster.routing.allocation.disk.threshold_enabled": False,
            **settings,
        }
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in found.items()]
        (self._directory / "opensearch.yml").write_text("".join(lines))
        self._process = None

    def __enter__(self) -> OpensearchProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return when it answers."""
        assert any(HOME.glob("lib/opensearch-*.jar")), (
            "this test needs OpenSearch: run tools/opensearch"
        )
        options = {
            "java.security.manager": "allow",
            "java.io.tmpdir": self._directory,
            # Without native libraries it does not notice that root runs it, which it
            # refuses.
            "jna.nosys": "true",
            "jna.nounpack": "true",
            "opensearch.path.home": HOME,
            "opensearch.path.conf": self._directory,
            "opensearch.distribution.type": "tar",
            "opensearch.bundled_jdk": "false",
        }
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xms256m", "-Xmx512m"),
                    *(f"-D{name}={value}" for name, value in options.items()),
                    *("-cp", f"{HOME}/lib/*", "org.opensearch.bootstrap.OpenSearch"),
                ],
                stdout=log,
                stderr=log,
            )
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            has_ended = self._process.poll() is not None
            assert not has_ended, (self._directory / "server.log").read_text()
            assert time.monotonic() < give_up_at
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        path = "/_cluster/health?wait_for_status=yellow&timeout=1s"
        try:
            return httpx.get(self.url + path, timeout=5).is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def put(self, index: str, body: dict) -> None:
        """Create *index*."""
        httpx.put(f"{self.url}/{index}", json=body, timeout=60).raise_for_status()

    def documents(self, index: str) -> dict[str, dict]:
        """Return the documents of *index*, by their ids."""
        httpx.post(f"{self.url}/{index}/_refresh").raise_for_status()
        answer = httpx.get(f"{self.url}/{index}/_search", params={"size": 10_000})
        hits = answer.raise_for_status().json()["hits"]["hits"]
        return {each["_id"]: each["_source"] for each in hits}
