"""
Compilation of ``.proto`` definitions by protoc, in a separate process.

A separate process, because parsing a client's input must neither block the broker nor
exhaust its memory.  Only the well-known types in ``google/protobuf`` can be imported.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.worker_pool import SECONDS_MAX, limited_command

FILE_NAME = "schema.proto"

_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]*)"', re.MULTILINE)


@lru_cache(maxsize=32)
def compile_proto(text: str) -> tuple[FileDescriptorProto, ...]:
    """
    Return the file that *text* defines, as the last one, after the files that it
    imports.

    Raises:
        InvalidSchema: The compiler refuses it; the message has its errors.
    """
    for name in _IMPORT.findall(text):
        if not name.startswith("google/protobuf/"):
            raise InvalidSchema(
                f"the Protobuf schema imports {name!r:.100}; only the well-known "
                "types in google/protobuf can be imported"
            )
    with (
        tempfile.TemporaryDirectory(prefix="danube-proto-") as directory,
        as_file(files("grpc_tools") / "_proto") as well_known,
    ):
        source, result = Path(directory, FILE_NAME), Path(directory, "result")
        source.write_text(text)
        _run_compiler(directory, str(well_known), result)
        descriptors = FileDescriptorSet.FromString(result.read_bytes())
    return tuple(descriptors.file)


def _run_compiler(directory: str, well_known: str, result: Path) -> None:
    command = limited_command(
        "-m",
        "grpc_tools.protoc",
        f"-I{directory}",
        f"-I{well_known}",
        "--include_imports",
        f"--descriptor_set_out={result}",
        FILE_NAME,
    )
    try:
        # The command is our own interpreter, without any input of the client.
        done = subprocess.run(  # noqa: S603
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidSchema(
            f"the Protobuf compiler took more than {SECONDS_MAX} s"
        ) from error
    if done.returncode:
        raise InvalidSchema(f"the Protobuf schema is refused: {_reason(done.stderr)}")


def _reason(stderr: str) -> str:
    """Return the compiler's errors, without its log and the path of the directory."""
    lines = [
        FILE_NAME + line.rpartition(FILE_NAME)[2]
        for line in stderr.splitlines()
        if f"{FILE_NAME}:" in line and "parser.cc" not in line
    ]
    return "; ".join(lines[:5]) or stderr.strip()[-500:] or "the compiler crashed"
