"""`danube docs` prints the AsyncAPI document of a program."""

import json

import yaml
from typer.testing import CliRunner

from pydanube_cli.main import app

PROGRAM = """
import pydanube

workers = pydanube.Workers()
other = 7


@workers.worker("/shop/orders", subscription="billing", publish="/shop/invoices")
def bill(order: str) -> str:
    return order
"""


def run(tmp_path, monkeypatch, name, *options):
    (tmp_path / "shop_app.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return CliRunner().invoke(app, ["docs", name, *options])


def test_a_module_or_a_file_is_printed_as_yaml_or_json(tmp_path, monkeypatch):
    options = ["--title", "Shop", "--program-version", "2.0", "--host", "b:6651"]
    as_yaml = run(tmp_path, monkeypatch, "shop_app:workers", *options)
    as_json = run(
        tmp_path, monkeypatch, "shop_app.py:workers", *options, "--format", "json"
    )
    document = yaml.safe_load(as_yaml.output)
    assert document == json.loads(as_json.output)
    assert document["info"] == {"title": "Shop", "version": "2.0"}
    assert document["servers"]["danube"]["host"] == "b:6651"
    assert document["operations"].keys() == {"bill", "bill_results"}


def test_what_is_no_program_is_explained(tmp_path, monkeypatch):
    for name, expected in [
        ("shop_app:wrkers", "did you mean 'workers'"),
        ("shop_app:other", "name an object of the class pydanube.Workers"),
        ("shop_nothing:workers", "cannot be imported"),
        ("shop_app", "MODULE:"),
    ]:
        result = run(tmp_path, monkeypatch, name)
        assert result.exit_code != 0
        assert expected in " ".join(result.output.split())
