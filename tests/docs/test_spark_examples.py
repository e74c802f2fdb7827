"""The examples of the README and of the guides that start Spark run as they stand."""

import pytest

from support.drivers.examples import BLOCK, run_page, run_program
from support.project import ROOT
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]

# Their blocks build on each other.
PAGES_OF_ONE_SCRIPT = [
    "docs/guide/spark.md",
    "docs/guide/spark-write.md",
    "docs/guide/delta.md",
    "docs/guide/iceberg.md",
]


@pytest.mark.parametrize("page", PAGES_OF_ONE_SCRIPT)
def test_the_examples_of_a_page_run_as_one_script(page, tmp_path):
    blocks = BLOCK.findall((ROOT / page).read_text())
    script = "\n".join(code for language, code in blocks if language == "python")
    with BrokerProcess(tmp_path / "data") as broker:
        run_program(script, broker.url, tmp_path)


@pytest.mark.parametrize("page", ["README.md", "docs/guide/pipelines.md"])
def test_the_examples_of_a_page_run(page, tmp_path):
    run_page(page, tmp_path, run_program)
