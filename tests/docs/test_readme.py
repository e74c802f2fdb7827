"""The first programs of the README do what it says, on an empty broker."""

import asyncio
import re
import sys

import pytest

from pydanube_broker.servers.native.connection import listen
from pydanube_broker.testing import memory_broker
from support.project import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```py(?:thon)?\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
FIRST_PAGES = ["README.md"] + [
    f"docs/guide/{name}.md" for name in ("start", "install", "consume", "workers")
]
LATER_WORDS = re.compile(r"\b(sealed|segments?|staged|tail|epochs?)\b", re.IGNORECASE)


def defined_by(program, url):
    """Return the names of *program*, whose client connects to *url*."""
    code = program.replace("danube://127.0.0.1:6651", url)
    code = code.replace("connect()", f"connect({url!r})")
    code = code.replace("\npydanube.run(main())\n", "\n")
    names = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    return names


async def test_the_first_program_prints_all_five_messages(capsys):
    async with memory_broker() as broker:
        names = defined_by(PROGRAMS[0], broker.url)
        await names["main"]()
    printed = capsys.readouterr().out.splitlines()[1:]
    assert printed == ["b'paid'", "b'shipped'", "b'a'", "b'b'", "b'c'"]


async def test_the_service_of_the_readme_writes_invoices():
    async with memory_broker() as broker, broker.connect() as client:
        await client.namespaces.create("shop")
        names = defined_by(PROGRAMS[1], broker.url)
        async with (
            client.running_workers(names["workers"]),
            client.producer("/shop/orders", schema=names["Order"]) as producer,
        ):
            await producer.send(names["Order"](7, 10.0))
            async for batch in client.read("/shop/invoices", follow=True):
                [invoice] = batch.values()
                break
    assert invoice == {"order": 7, "total": 12.0}


WITHOUT_ARROW = """
import sys

sys.modules["pyarrow"] = sys.modules["uvloop"] = None
"""


@pytest.mark.slow
async def test_first_programs_run_without_pyarrow():
    async with (
        memory_broker() as broker,
        listen(broker.server, "127.0.0.1", 0) as port,
    ):
        url = f"danube://127.0.0.1:{port}"
        first = PROGRAMS[0].replace("danube://127.0.0.1:6651", url)
        printed = await run_python(WITHOUT_ARROW + first)
        assert printed[1:] == ["b'paid'", "b'shipped'", "b'a'", "b'b'", "b'c'"]
        typed = TYPED.replace("URL", url)
        assert await run_python(WITHOUT_ARROW + typed) == [
            f"{kind} Order(id=7, note='ö')" for kind in ("json_schema", "avro")
        ]


TYPED = """
from dataclasses import dataclass

import pydanube

@dataclass
class Order:
    id: int
    note: str

async def main() -> None:
    async with pydanube.connect("URL") as client:
        for kind in "json_schema", "avro":
            topic = f"/default/{kind}"
            schema = pydanube.Schema.from_dataclass(Order, type=kind)
            await client.topics.create(topic)
            async with client.producer(topic, schema=schema) as producer:
                await producer.send(Order(7, "\u00f6"))
            async for batch in client.read(topic, schema=Order):
                print(kind, *batch.values())

pydanube.run(main())
"""


async def run_python(program):
    """Run *program* in a process of its own; return the lines that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().splitlines()


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_first_pages_use_no_words_of_the_glossary_before_it(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    # Commands and addresses of pages are no prose.
    prose = re.sub(
        r"```.*?^```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL
    )
    assert LATER_WORDS.findall(prose) == []
