"""
The pages of the documentation site: hooks of MkDocs.

The pages are those of ``docs``.  The home page is README.md, and a few other files of
the repository are pages, too.  Links that lead out of the documentation lose their
target, because the site has no copy of the source.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ADDED = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "reporting.md": "SECURITY.md",
}
"""Pages that are files of the repository outside of ``docs``."""
DIRECTORIES = {
    "docs/reference": "docs/reference/api.md",
    "docs/format": "docs/format/stream.md",
    "docs/decisions": "docs/decisions/README.md",
}
"""The pages that links to directories lead to."""
HERO = """\
---
hide: [navigation]
---
# pydanube

<div class="hero">
<p class="hero-title">Messaging for Python, from one script to a cluster</p>
<p>Topics that work as queues and as logs. A broker that starts with one command, a
client of {size}, and a data pipeline on Apache Spark.</p>
<p><a class="md-button md-button--primary" href="guide/start.html">Get started</a>
<a class="md-button" href="guide/coming-from.html">Coming from Kafka, NATS or
RabbitMQ</a></p>
</div>
"""
"""The beginning of the home page, instead of the first paragraph of README.md."""
STYLE = """\
.hero { padding: 1.2rem 0 .4rem; }
.md-typeset h1:has(+ .hero) { display: none; }
.md-typeset .hero-title { margin: 0 0 .6rem; font-size: 1.6rem; font-weight: 700; }
.hero-title { line-height: 1.15; }
.hero p { font-size: .95rem; max-width: 40rem; }
.hero .md-button { margin: .2rem .4rem .2rem 0; }
[data-md-color-scheme=slate] .hero .md-button:not(.md-button--primary) {
  color: inherit; border-color: currentcolor;
}
.md-grid { max-width: 72rem; }
/* Wide tables scroll; their columns stay readable, and words whole. */
.md-typeset table:not([class]) :is(td, th) { min-width: 5rem; }
.md-typeset table:not([class]) code { word-break: normal; overflow-wrap: normal; }
.md-typeset table:not([class]) th:empty { padding: 0; }
.md-typeset :is(h3, h4, p, li) > code { overflow-wrap: anywhere; }
.md-typeset .language-text code { white-space: pre-wrap; }
"""

_CLIENT_SIZE = re.compile(r"a client of (\d+ MB)")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_DIAGRAM = re.compile(
    r"^```mermaid\nsequenceDiagram\n(.*?)^```", re.MULTILINE | re.DOTALL
)
_PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
_ARROW = re.compile(r"(\w+)--?>>(\w+): (.+)")
_NOTE = re.compile(r"Note over [^:]+: (.+)")
_NAV_EMPTY = "More"

_pages: dict[str, tuple[str, str]] = {}


def on_config(config: Any) -> Any:
    """Replace directories in the navigation by their pages."""
    named = str(config["nav"])
    guides = sorted((ROOT / "docs/guide").glob("*.md"))
    unnamed = [f"guide/{each.name}" for each in guides if each.name not in named]
    config["nav"] = _expanded(config["nav"], unnamed)
    return config


def _expanded(nav: list[Any], unnamed: list[str]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str):
            found.append(entry)
            continue
        [(name, content)] = entry.items()
        if name == _NAV_EMPTY:
            if unnamed:
                found.append({name: unnamed})
        elif isinstance(content, list):
            found.append({name: _expanded(content, unnamed)})
        elif content.endswith("/"):
            pages = sorted((ROOT / "docs" / content).glob("*.md"))
            found.append({name: [f"{content}{page.name}" for page in pages]})
        else:
            found.append(entry)
    return found


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in ``docs``, and the style sheet."""
    for page, source in ADDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if page == "index.md":
            text = _with_hero(text)
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "site.css", content=STYLE))
    return files


def _with_hero(readme: str) -> str:
    """Return the README as a home page: its title and first paragraph replaced."""
    _title, first, rest = readme.split("\n\n", 2)
    size = _CLIENT_SIZE.search(first.replace("\n", " "))
    assert size is not None, "the first paragraph of README.md says what the client is"
    return f"{HERO.format(size=size[1])}\n{rest}"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with links and diagrams as the site has them."""
    path = page.file.src_uri
    source = ADDED.get(path, f"docs/{path}")

    def replace(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        found, _, anchor = target.partition("#")
        absolute = posixpath.normpath(posixpath.join(posixpath.dirname(source), found))
        absolute = DIRECTORIES.get(absolute, absolute)
        for name, file in ADDED.items():
            if absolute == file:
                absolute = f"docs/{name}"
        if not absolute.startswith("docs/"):
            return text
        relative = posixpath.relpath(
            absolute.removeprefix("docs/"), posixpath.dirname(path) or "."
        )
        return f"{mark}[{text}]({relative}{'#' if anchor else ''}{anchor})"

    text = _DIAGRAM.sub(lambda found: _as_steps(found[1]), _LINK.sub(replace, markdown))
    _pages[path] = (page.file.dest_uri, text)
    return text


def _as_steps(diagram: str) -> str:
    """Return a sequence diagram as lines; its renderer would need a network."""
    names = dict(_PARTICIPANT.findall(diagram))
    steps = []
    for line in diagram.splitlines():
        if arrow := _ARROW.search(line):
            sender, receiver = names[arrow[1]], names[arrow[2]]
            to = "" if sender == receiver else f" \N{RIGHTWARDS ARROW} {receiver}"
            steps.append(f"{sender}{to}: {arrow[3]}")
        elif note := _NOTE.search(line):
            steps.append(f"    ({note[1].replace('<br/>', ' ')})")
    return "```text\n" + "\n".join(steps) + "\n```"


def on_post_build(config: Any) -> None:
    """Write llms.txt, and the pages as Markdown, for programs that read the site."""
    site = Path(config["site_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for section in ("guide", "reference", "format", ""):
        pages = [path for path in _pages if posixpath.dirname(path) == section]
        lines += [f"## {section.capitalize() or 'Project'}", ""]
        for path in sorted(pages):
            _, text = _pages[path]
            (site / path).write_text(text, encoding="utf-8")
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            lines.append(f"- [{title[1] if title else path}]({path})")
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
