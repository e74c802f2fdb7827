"""A mirror whose permissions are taken away while it runs, and given again."""

import json
import time

import pytest

from pydanube import sync
from support.drivers.commands import danube, start_danube
from support.drivers.pipelines import send
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

PIPELINE = """\
name: mirror
trigger: continuous
retries: {count: 2, backoff: 100ms}
mirrors:
  shop:
    topic: /shop/{table}
    tables: {"*": {key: id, schema: "id BIGINT"}}
    format: danube-delta
    path: "lake/{table}"
"""
WAIT_S = 300


def eventually(question, shown):
    give_up_at = time.monotonic() + WAIT_S
    while not question():
        assert time.monotonic() < give_up_at, shown()
        time.sleep(0.1)


class Shop:
    """A pipeline and its broker, which permits the pipeline only what it is given."""

    def __init__(self, path, url, admin):
        self.path, self.admin = path, admin
        self.file = path / "mirror.yaml"
        self.file.write_text(PIPELINE)
        self.admin.namespaces.create("shop")
        self.environment = {
            "url": url,
            "XDG_STATE_HOME": str(path),
            "DANUBE_API_KEY": self.admin.security.create_api_key("lake").key,
        }
        self.next_id = {}
        self.add_table("a")
        self.add_table("b")

    def add_table(self, table):
        self.admin.topics.create(f"/shop/{table}", reliable=True)
        self.next_id[table] = 0
        self.publish(table)

    def publish(self, table):
        number = self.next_id[table]
        self.next_id[table] += 1
        event = {"before": None, "after": {"id": number}, "op": "c", "ts_ms": number}
        send(self.admin, f"/shop/{table}", event)

    def permit(self, table):
        security = self.admin.security
        security.add_binding(
            "user:lake", ["consumer"], [f"/shop/{table}"], binding_id=table
        )

    def revoke(self, table):
        self.admin.security.remove_binding(table)

    def validate(self):
        return danube("pipeline", "validate", str(self.file), **self.environment)

    def start(self):
        return start_danube(
            *("pipeline", "run", str(self.file), "--master", "local[2]"),
            **self.environment,
        )

    def status(self):
        command = ("pipeline", "status", str(self.file), "--format", "json")
        found = danube(*command, **self.environment)
        return json.loads(found.stdout) if found.stdout else {}

    def log(self):
        return danube("pipeline", "logs", "mirror", **self.environment).stdout

    def has_all(self, table):
        from deltalake import DeltaTable

        path = str(self.path / "lake" / table)
        if not DeltaTable.is_deltatable(path):
            return False
        rows = DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
        return sorted(rows) == list(range(self.next_id[table]))


@pytest.fixture
def shop(tmp_path):
    settings, key_file = tmp_path / "broker.yaml", tmp_path / "bootstrap.key"
    settings.write_text(
        f"security: {{enabled: true, bootstrap_key_file: {key_file}}}\n"
    )
    with BrokerProcess(tmp_path / "data", "--config", str(settings)) as broker:
        key = key_file.read_text().strip()
        with sync.connect(broker.url, api_key=key) as admin:
            yield Shop(tmp_path, broker.url, admin)


@pytest.mark.spark
@pytest.mark.soak
def test_a_mirror_names_what_it_lacks_and_goes_on_after_the_grant(shop):
    pytest.importorskip("pyspark")
    refused = shop.validate()
    assert refused.returncode != 0
    assert "no binding grants describe on /shop/t to user:lake" in refused.stderr
    shop.permit("a")
    shop.permit("b")
    with shop.start() as run:
        try:
            eventually(lambda: shop.has_all("a") and shop.has_all("b"), shop.log)
            shop.revoke("b")
            shop.publish("a")
            shop.publish("b")
            eventually(
                lambda: shop.status().get("not_mirrored") == ["shop_b"], shop.log
            )
            eventually(lambda: shop.has_all("a"), shop.log)
            shop.permit("b")
            eventually(lambda: shop.has_all("b"), shop.log)
            # Nothing is left.
            shop.revoke("a")
            shop.revoke("b")
            shop.publish("a")
            shop.publish("b")
            run.wait(WAIT_S)
        finally:
            run.kill()
        output = (run.stdout.read() + run.stderr.read()).decode()
    assert "(no binding grants describe on /shop/b to user:lake)" in output
    assert "error: shop_" in output
    with shop.start() as run:
        run.wait(WAIT_S)
        output = run.stderr.read().decode()
    assert "or none that may be seen: no binding grants describe on /shop/" in output
    shop.permit("a")
    shop.permit("b")
    with shop.start() as run:
        try:
            eventually(lambda: shop.has_all("a") and shop.has_all("b"), shop.log)
        finally:
            danube("pipeline", "stop", "mirror", **shop.environment)
            run.kill()
