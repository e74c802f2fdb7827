"""
Compilation of ``.proto`` definitions by protoc, in a separate process.

A separate process, because parsing a client's input must neither block the broker nor
exhaust its memory.  Only the well-known types in ``google/protobuf``, and files of the
definition itself, can be imported.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection, Container
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.pure.proto_files import names_of, split_files
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
    others, main = split_files(text)
    names = names_of(others)
    for each in (main, *others.values()):
        _check_imports(each, names)
    main_name = FILE_NAME
    while main_name in names:
        main_name = f"_{main_name}"
    with (
        tempfile.TemporaryDirectory(prefix="danube-proto-") as directory,
        as_file(files("grpc_tools") / "_proto") as well_known,
    ):
        sources = Path(directory, "sources")
        for name, each in [
            (main_name, main),
            *((file.name, each) for file, each in others.items()),
        ]:
            source = sources / name
            try:
                source.parent.mkdir(parents=True, exist_ok=True)
                source.write_text(each)
            except OSError as error:
                raise InvalidSchema(
                    f"the file name {name} is not allowed: {error.strerror}"
                ) from None
        _run_compiler(sources, str(well_known), main_name, names)
        result = (sources.parent / "result").read_bytes()
        descriptors = FileDescriptorSet.FromString(result)
    return tuple(descriptors.file)


def _check_imports(text: str, names: Container[str]) -> None:
    for name in _IMPORT.findall(text):
        if not name.startswith("google/protobuf/") and name not in names:
            raise InvalidSchema(
                f"the Protobuf schema imports {name!r:.100}; only the well-known "
                "types in google/protobuf can be imported, and files that it refers to"
            )


def _run_compiler(
    sources: Path, well_known: str, main: str, names: Collection[str]
) -> None:
    command = limited_command(
        "-m",
        "grpc_tools.protoc",
        f"-I{sources}",
        f"-I{well_known}",
        "--include_imports",
        f"--descriptor_set_out={sources.parent / 'result'}",
        main,
    )
    try:
        # The command is our own interpreter, without any input of the client.
        done = subprocess.run(  # noqa: S603
            command,
            cwd=sources,
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
        reason = _reason(done.stderr, (main, *names))
        raise InvalidSchema(f"the Protobuf schema is refused: {reason}")


def _reason(stderr: str, names: Collection[str]) -> str:
    """Return the compiler's errors, without its log and the path of the directory."""
    lines: list[str] = []
    for line in stderr.splitlines():
        places = [line.find(f"{name}:") for name in names]
        begins = [place for place in places if place >= 0]
        if begins and "parser.cc" not in line:
            lines.append(line[min(begins) :])
    return "; ".join(lines[:5]) or stderr.strip()[-500:] or "the compiler crashed"
