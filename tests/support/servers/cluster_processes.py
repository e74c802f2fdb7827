"""Broker processes that serve one cluster, over a service and a shared directory."""

from __future__ import annotations

import json
from uuid import uuid4

from support.servers.processes import BrokerProcess


def cluster_settings(endpoints, directory, *, kind="etcd", shards=8, ttl_s=6):
    """Return the settings of all brokers of a new cluster."""
    return {
        "metadata": {
            "kind": kind,
            kind: {
                "endpoints": endpoints,
                "cluster_name": uuid4().hex,
                # Longer than the service on a busy machine takes to answer.
                "session_ttl_s": ttl_s,
            },
        },
        "storage": {
            "seal_age_s": 1.0,
            "seal_interval_s": 0.2,
            "remote": {"url": (directory / "remote").as_uri()},
            "journal": {"kind": "object"},
        },
        "cluster": {"enabled": True, "shards": shards},
    }


def cluster_broker(directory, settings, name):
    """Return a broker of the cluster, which is not started yet."""
    path = write_settings(directory, settings, name)
    return BrokerProcess(
        directory / name, "--config", str(path), log_file=directory / f"{name}.log"
    )


def write_settings(directory, settings, name):
    """Write the file with the settings of a broker; return its path."""
    path = directory / f"{name}.yaml"
    own = settings["cluster"] | {"broker_id": name}
    path.write_text(json.dumps(settings | {"cluster": own}))
    return path
