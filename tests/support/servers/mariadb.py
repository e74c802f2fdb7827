"""A MariaDB server, from Debian's package ``mariadb-server``, with a binary log."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import tempfile
from pathlib import Path

import pymysql

from support.servers.ports import free_port
from support.servers.programs import required_program

ROW_LOG = {
    "log-bin": "log",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "server-id": 1,
}


def program(name: str) -> str:
    """Return the path of a program of the server."""
    return required_program(name, "mariadb-server")


class MariadbProcess:
    """A server without databases; ``with`` starts and ends it."""

    def __init__(self, **settings: object) -> None:
        self.port = free_port()
        self._settings = {**ROW_LOG, **settings}
        self._process = None

    def __enter__(self) -> MariadbProcess:
        self._directory = Path(tempfile.mkdtemp(prefix="pydanube-mariadb-"))
        subprocess.run(
            [
                program("mariadb-install-db"),
                "--no-defaults",
                f"--user={getpass.getuser()}",
                f"--datadir={self._directory / 'data'}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            capture_output=True,
        )
        self.start()
        self.execute(
            "CREATE USER danube@'%' IDENTIFIED BY 'sesame'",
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO danube@'%'",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        self._process = subprocess.Popen(
            [
                program("mariadbd"),
                "--no-defaults",
                f"--user={getpass.getuser()}",
                f"--datadir={self._directory / 'data'}",
                f"--socket={self._directory / 'socket'}",
                f"--port={self.port}",
                "--bind-address=127.0.0.1",
                "--innodb-buffer-pool-size=32M",
                *settings,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self._process.stderr:
            if "ready for connections" in line:
                return
        raise AssertionError("MariaDB did not start")

    def crash(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()

    def connect(self, **options):
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", **options)

    def execute(self, *statements: str) -> None:
        """Run *statements* in one transaction."""
        with self.connect() as connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            connection.commit()
