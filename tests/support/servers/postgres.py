"""
A real PostgreSQL server, from the package ``pgserver``, for tests as any user.

PostgreSQL does not run as root.  Started by root, it runs as the user ``nobody``, who
exists everywhere; so its directory is one of its own directly under the temporary
one, whose parents everybody may pass.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

UNPRIVILEGED = "nobody"


class PostgresProcess:
    """A server with an empty database; ``with`` starts and ends it."""

    def __init__(self, **settings: object) -> None:
        self._settings = settings

    def __enter__(self) -> PostgresProcess:
        self._directory = Path(tempfile.mkdtemp(prefix="pydanube-postgres-"))
        self._as_user = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            self._as_user = {
                "user": user.pw_uid,
                "group": user.pw_gid,
                "extra_groups": [],
            }
            os.chown(self._directory, user.pw_uid, user.pw_gid)
        self._programs = self._reachable_programs()
        options = ("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "--username=postgres", *options)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()
        shutil.rmtree(self._directory)

    @property
    def uri(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._directory}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._directory),
            "fsync": "off",
            # In the directory, with which it goes if the server is killed.
            "dynamic_shared_memory_type": "mmap",
            **self._settings,
        }
        given = " ".join(
            f"-c {name}={str(value)!r}" for name, value in settings.items()
        )
        self._run("pg_ctl", "start", "-w", "-l", self._directory / "log", "-o", given)

    def crash(self) -> None:
        """End it at once, without having it write anything down."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def query(self, statement: str) -> list[tuple]:
        """The rows that *statement* gives."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def execute(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def _run(self, program: str, *arguments: object) -> None:
        # Not to a pipe: the server would hold its other end for as long as it runs.
        with (self._directory / f"{program}.out").open("ab") as out:
            done = subprocess.run(
                [self._programs / program, "-D", self._directory / "data", *arguments],
                cwd=self._directory,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                **self._as_user,
            )
        text = Path(out.name).read_text(encoding="utf-8")
        assert done.returncode == 0, text

    def _reachable_programs(self) -> Path:
        [package] = find_spec("pgserver").submodule_search_locations
        installed = Path(package) / "pginstall"
        if not self._as_user or _may_anybody_pass(installed):
            return installed / "bin"
        copy = self._directory / "programs"
        shutil.copytree(installed, copy)
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IROTH | stat.S_IXOTH)
        return copy / "bin"


def _may_anybody_pass(path: Path) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in [path, *path.parents])
