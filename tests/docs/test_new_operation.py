"""
The edits in CONTRIBUTING are all that a new operation needs.

The test makes them in a copy of the source: the messages, the row, the handler and the
method of the client; the fifth is the test of the operation itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pydanube.client.operations.topics
import pydanube.wire.native.kinds
import pydanube.wire.pb.stream_pb2
import pydanube_broker.operations.topics
from support.project import ROOT
from tools.proto import use_our_pool

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

MESSAGES = """
// Asks for the number of messages that a topic keeps.
message CountMessages {
  string topic = 1;
}

message MessageCount {
  uint64 count = 1;
}
"""
ROWS = """
    COUNT_MESSAGES = _op(
        250, pb.CountMessages, CONSUME, TOPIC, pb.MessageCount, REPEAT
    )
    MESSAGE_COUNT = _frame(251, pb.MessageCount, BROKER)
"""
HANDLER = '''

@operation
async def count_messages(call: Call, m: pb.CountMessages) -> pb.MessageCount:
    """Return the number of messages that a topic keeps."""
    async with call.broker.views.viewing(TopicName.parse(m.topic)) as topic:
        offsets = topic.offsets()
    return pb.MessageCount(count=offsets.end_offset - offsets.base_offset)
'''
METHOD = '''
    async def count_messages(self, topic: str) -> int:
        """Return the number of messages that *topic* keeps."""
        answer = await self._requester.request_topic(topic, pb.CountMessages())
        return int(answer.count)
'''
TEST = """
import asyncio

import pydanube
from support.fakes.http_api import State, http_of
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker
from pydanube.security.principals import Principal
from tools.reference import operations_page

TOPIC, ALICE = "/shop/orders", Principal("alice", "token")


async def main():
    async with guarded_broker() as broker, client_of(broker, ROOT) as root:
        await root.namespaces.create("shop")
        await root.topics.create(TOPIC)
        async with root.producer(TOPIC) as producer:
            await producer.send_batch([b"1", b"2"])
        assert await root.topics.count_messages(TOPIC) == 2
        identity = ChosenIdentity()
        async with (
            client_of(broker, ALICE) as alice,
            http_of(State(broker.broker), authenticator=identity) as http,
        ):
            try:
                await alice.topics.count_messages(TOPIC)
            except pydanube.PermissionDenied as error:
                assert "count_messages is not allowed" in str(error)
            else:
                raise AssertionError
            for principal, status in ((ALICE, 403), (ROOT, 200)):
                identity.principal = principal
                path, body = "/api/v1/count_messages", {"topic": TOPIC}
                answer = await http.post(path, json=body)
                assert answer.status_code == status, answer.text
            assert answer.json() == {"count": "2"}
            document = (await http.get("/api/v1/openapi.json")).json()
    described = document["paths"]["/count_messages"]["post"]
    assert described["summary"] == "Return the number of messages that a topic keeps."
    assert described["x-permission"] == "consume"
    assert "MessageCount" in document["components"]["schemas"]
    assert "| `count_messages` |" in operations_page()
    print(pydanube.__file__)


asyncio.run(main())
"""
GENERIC = [
    "packages/pydanube/tests/wire/native/test_kinds.py",
    "packages/pydanube-broker/tests/operations/test_access.py",
]
"""Tests of all operations, which cover the new one without an edit."""


def copy_of(module, directory):
    """Copy the distribution of *module* once, and return the copy of its file."""
    root = module.__name__.partition(".")[0]
    if not (directory / root).exists():
        source = Path(import_module(root).__file__).parent
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, directory / root, ignore=skipped)
    return directory / f"{module.__name__.replace('.', '/')}.py"


def insert(path, text, before):
    old = path.read_text(encoding="utf-8")
    assert old.count(before) == 1
    path.write_text(old.replace(before, text + before), encoding="utf-8")


def run(directory, *arguments):
    """Run Python with the copy, and return what it prints."""
    paths = os.pathsep.join(map(str, (directory, ROOT / "tests", ROOT)))
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_operation_needs_five_edits(tmp_path):
    generated = copy_of(pydanube.wire.pb.stream_pb2, tmp_path)
    proto = generated.with_name("stream.proto")
    proto.write_text(proto.read_text(encoding="utf-8") + MESSAGES, encoding="utf-8")
    arguments = [f"-I{tmp_path}", f"--python_out={tmp_path}", str(proto)]
    run(tmp_path, "-m", "grpc_tools.protoc", *arguments)
    use_our_pool(generated)
    kinds = copy_of(pydanube.wire.native.kinds, tmp_path)
    insert(kinds, ROWS, "\n\nKIND_OF: dict")
    handlers = copy_of(pydanube_broker.operations.topics, tmp_path)
    handlers.write_text(handlers.read_text(encoding="utf-8") + HANDLER, "utf-8")
    client = copy_of(pydanube.client.operations.topics, tmp_path)
    insert(client, METHOD, "\n\nasync def drops_of(")
    used = run(tmp_path, "-c", TEST).strip()
    assert Path(used).is_relative_to(tmp_path)
    run(tmp_path, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *GENERIC)
