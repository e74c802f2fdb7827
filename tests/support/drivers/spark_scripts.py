"""Running the script of a user of Spark, and checking what came of it."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

SCRIPT = Path(__file__).parent / "spark_script.py"
MESSAGES = 1_000
TIMEOUT_S = 600


def run_script(place, broker_url, client, directory, *how):
    """What the script has found in *place*; topics are checked to be copied."""
    marker = uuid.uuid4().hex[:8]
    source, table, stream = (f"/default/{n}-{marker}" for n in ("from", "table", "to"))
    for topic in (source, table, stream):
        client.topics.create(topic)
    with client.producer(source) as producer:
        producer.send_batch([b"%d" % number for number in range(MESSAGES)])
    words = (place, broker_url, source, table, stream, str(directory / "checkpoint"))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, *how],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert numbers(client, table) == list(range(0, MESSAGES, 2))
    assert numbers(client, stream) == list(range(MESSAGES))
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rows"], found["offsets"]) == (MESSAGES, MESSAGES)
    assert found["batches"] == 2
    assert found["settings"]["spark.sql.session.timeZone"] == "UTC"
    return found


def numbers(client, topic):
    return sorted(int(each.payload) for found in client.read(topic) for each in found)
