"""
Generates the Python of our .proto files, and records what it was made from.

The compiler is installed into an environment of its own, in a version that is old
on purpose: generated code needs a protobuf at least as new as its compiler, and
users bring their own protobuf.  ``tools/proto.sha256`` lets a test see that neither
the sources nor what was generated has changed since.

Services get no code: the gRPC servers read their methods from the descriptors, so the
messages stay free of grpc.  The descriptors are in a pool of our own, because the
process of a user may also hold another client's copy of the ``danube`` packages, and
a pool refuses a name that it knows from another file.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "packages" / "pydanube" / "src" / "pydanube" / "wire" / "pb"
RECORD = ROOT / "tools" / "proto.sha256"

COMPILER = "grpcio-tools==1.76.*"
"""Its code needs protobuf 6.31.1 or newer, which is the bound of pydanube."""

POOL_IMPORT = "from google.protobuf import descriptor_pool as _descriptor_pool"
OUR_POOL_IMPORT = "from pydanube.wire.pb import POOL as _POOL"
POOL_USE = "_descriptor_pool.Default()"


def main(arguments: list[str]) -> int:
    """Generate, or only check the record; the exit code."""
    if "--check" in arguments:
        if RECORD.read_text(encoding="utf-8") == _record():
            return 0
        print(
            f"{SOURCES.relative_to(ROOT)} is not what 'make proto' made; run it again."
        )
        return 1
    environment = ROOT / "build" / "proto"
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True, clear=True)
    _run(python, "-m", "pip", "install", "--quiet", COMPILER)
    sources = sorted(SOURCES.glob("*.proto"))
    _run(
        python,
        "-m",
        "grpc_tools.protoc",
        "-I",
        SOURCES.parents[2],
        f"--python_out={SOURCES.parents[2]}",
        f"--pyi_out={SOURCES.parents[2]}",
        *sources,
    )
    for path in SOURCES.glob("*_pb2.py"):
        use_our_pool(path)
    RECORD.write_text(_record(), encoding="utf-8")
    print(f"Generated {', '.join(path.stem for path in sources)}.")
    return 0


def use_our_pool(path: Path) -> None:
    """Let generated code use the pool of ``wire.pb``."""
    text = path.read_text(encoding="utf-8")
    assert POOL_IMPORT in text, f"{path.name} gets its pool in another way"
    assert POOL_USE in text, f"{path.name} gets its pool in another way"
    text = text.replace(POOL_IMPORT, OUR_POOL_IMPORT).replace(POOL_USE, "_POOL")
    path.write_text(text, encoding="utf-8")


def _run(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True)


def _record() -> str:
    """As ``sha256sum`` writes it, of the sources and of what was made from them."""
    paths = sorted([*SOURCES.glob("*.proto"), *SOURCES.glob("*_pb2.py*")])
    return "".join(
        f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}\n"
        for path in paths
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
