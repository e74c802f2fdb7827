"""The first programs of the README do what it says, on an empty broker."""

import re

import pytest

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


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_first_pages_use_no_words_of_the_glossary_before_it(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    # Commands and addresses of pages are no prose.
    prose = re.sub(
        r"```.*?^```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL
    )
    assert LATER_WORDS.findall(prose) == []
