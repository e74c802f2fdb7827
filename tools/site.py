"""
Build the documentation site of this version: ``build/site/0.1``, beside others.

A version is a directory, and ``versions.json`` lists them for the selector on each
page.  So the site of a new version is added to those of the others by a copy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from pydanube.model.version import __version__

ROOT = Path(__file__).parents[1]
REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<title>pydanube</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">pydanube {version}</a>
"""


def main() -> None:
    """Build the site, or fail if a link leads nowhere."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    output: Path = parser.parse_args().output.absolute()
    version = ".".join(__version__.split(".")[:2])
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    options = ["--config-file", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(
        [*command, *options, "--site-dir", str(output / version)],
        check=False,
        # Material recommends its successor with each build.
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    if done.returncode:
        sys.exit(done.returncode)
    found = {each.parent.name for each in output.glob("*/index.html")}
    versions = sorted(found, key=lambda name: [*map(int, name.split("."))])[::-1]
    listed = [{"version": each, "title": each, "aliases": []} for each in versions]
    listed[0]["aliases"] = ["latest"]
    (output / "versions.json").write_text(json.dumps(listed))
    page = REDIRECT.format(version=versions[0])
    (output / "index.html").write_text(page, encoding="utf-8")
    print(f"Wrote {output / version / 'index.html'}")


if __name__ == "__main__":
    main()
