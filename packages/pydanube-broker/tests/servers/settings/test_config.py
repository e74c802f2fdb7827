"""Settings: the order of the sources, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.servers.settings.config import (
    ORIGINAL_VARIABLES,
    OTHER_VARIABLES,
    BrokerConfig,
    config_type,
    ignored_variables,
    load_config,
    settings_of,
)


def load(
    file: str | None = None,
    *,
    environ: dict[str, str] | None = None,
    flags: dict[str, object] | None = None,
    tmp_path: Path | None = None,
) -> BrokerConfig:
    path = None
    if file is not None:
        assert tmp_path is not None
        path = tmp_path / "danube.yaml"
        path.write_text(file)
    return load_config(path, environ or {}, flags or {})


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load(*args, **kwargs)
    return str(caught.value)


def test_all_settings_have_defaults() -> None:
    config = load()
    assert config == config_type()()
    assert config.data_dir == Path("danube-data")
    assert (config.listen.stream_port, config.listen.http_port) == (6651, 8080)


def test_environment_overrides_the_file_and_flags_override_both(
    tmp_path: Path,
) -> None:
    config = load(
        "listen: {host: a, stream_port: 1, http_port: 1}",
        environ={"DANUBE_LISTEN__STREAM_PORT": "2", "DANUBE_LISTEN__HTTP_PORT": "2"},
        flags={"listen.http_port": 3},
        tmp_path=tmp_path,
    )
    listen = config.listen
    assert (listen.host, listen.stream_port, listen.http_port) == ("a", 2, 3)


def test_missing_flag_changes_nothing() -> None:
    config = load(
        environ={"DANUBE_DATA_DIR": "from-environment"}, flags={"data_dir": None}
    )
    assert config.data_dir == Path("from-environment")


def test_flag_may_be_a_path() -> None:
    assert load(flags={"data_dir": Path("here")}).data_dir == Path("here")


@pytest.mark.parametrize("file", ["", "# nothing\n", "listen:\n  # host: a\n"])
def test_file_with_only_comments_means_defaults(file: str, tmp_path: Path) -> None:
    assert load(file, tmp_path=tmp_path) == config_type()()


def test_environment_may_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "danube.yaml"
    path.write_text("log: {format: json}")
    assert load(environ={"DANUBE_CONFIG": str(path)}).log.format == "json"


def test_every_setting_can_be_set_in_the_environment() -> None:
    for setting in settings_of():
        default = setting.default
        if default is None:
            continue
        text = str(default).lower() if isinstance(default, bool) else str(default)
        if isinstance(default, tuple):
            text = msgspec.json.encode(default).decode()
        assert load(environ={setting.variable: text}) == config_type()()


def test_empty_variables_are_not_set() -> None:
    names = [setting.variable for setting in settings_of()]
    environ = dict.fromkeys([*names, "DANUBE_CONFIG", "DANUBE_UNKNOWN"], "")
    assert load(environ=environ) == config_type()()


def test_options_of_a_store_can_be_set_in_the_environment() -> None:
    environ = {
        "DANUBE_STORAGE__REMOTE__URL": "s3://bucket",
        "DANUBE_STORAGE__REMOTE__OPTIONS": '{"region": "eu-west-1"}',
    }
    assert load(environ=environ).storage.remote.options == {"region": "eu-west-1"}
    for wrong in ("region=eu-west-1", "[]", '{"region": 1}'):
        environ["DANUBE_STORAGE__REMOTE__OPTIONS"] = wrong
        with pytest.raises(InvalidConfig, match="DANUBE_STORAGE__REMOTE__OPTIONS"):
            load(environ=environ)


def test_stores_have_names_urls_and_options(tmp_path: Path) -> None:
    text = '{"backups": {"url": "s3://b/x", "options": {"region": "r"}}}'
    [(name, store)] = load(environ={"DANUBE_STORES": text}).stores.items()
    assert (name, store.url, store.options) == ("backups", "s3://b/x", {"region": "r"})
    for wrong in (
        "stores: {backups: s3://b/x}",
        "stores: {backups: {}}",
        "stores: {backups: {url: ''}}",
        "stores: {backups: {url: 's3://key:secret@b'}}",
        "stores: {backups: {url: 's3://b', option: {}}}",
        "stores: {a/b: {url: 's3://b'}}",
    ):
        with pytest.raises(InvalidConfig, match="stores"):
            load(wrong, tmp_path=tmp_path)


def test_trusted_proxies_are_addresses_and_networks() -> None:
    variable = "DANUBE_LISTEN__TRUSTED_PROXIES"
    for right in ("", "127.0.0.1", "::1, 10.0.0.0/8"):
        assert load(environ={variable: right}).listen.trusted_proxies == right
    for wrong in ("*", "proxy.example", "10.0.0.0/33", "10.0.0.1/8"):
        assert "trusted_proxies" in refusal(environ={variable: wrong})


def test_variables_of_clients_are_accepted() -> None:
    environ = dict.fromkeys(OTHER_VARIABLES, "") | {"HOME": "/", "DANUBIUS": "river"}
    assert load(environ=environ) == config_type()()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            "storage: {seal_byte: 5}",
            "config.storage: unknown setting 'seal_byte', did you mean 'seal_bytes'?",
        ),
        (
            "storage: {journal: {file_bytes: 5}}",
            (
                "config.storage.journal: unknown setting 'file_bytes', "
                "did you mean 'file_bytes_max'?"
            ),
        ),
        ("quux: 1", "config: unknown setting 'quux'"),
        ("7: 1", "config: unknown setting '7'"),
        (
            "listen: {stream_port: many}",
            "config.listen.stream_port: expected int, got str",
        ),
        (
            "listen: {stream_port: '6651'}",
            "config.listen.stream_port: expected int, got str",
        ),
        (
            "listen: {stream_port: 65536}",
            "config.listen.stream_port: expected int <= 65535",
        ),
        (
            "listen: {frame_bytes_max: 1}",
            "config.listen.frame_bytes_max: expected int >= 65536",
        ),
        (
            "topics: {auto_create: 1}",
            "config.topics.auto_create: expected bool, got int",
        ),
        (
            "log: {level: loud}",
            "config.log.level: expected one of debug, info, warning, error",
        ),
        (
            "listen: {advertised_url: 'broker:6650'}",
            (
                "config.listen.advertised_url: expected a URL with a scheme, a host "
                "and a port, such as http://broker.example:6650, got 'broker:6650'"
            ),
        ),
        ("listen: 5", "config.listen: expected settings by name, got int"),
        ("data_dir: 5", "config.data_dir: expected str that names a path, got int"),
        ("data_dir: ''", "config.data_dir: expected str that names a path, got str"),
    ],
)
def test_error_in_the_file_names_the_setting(
    file: str, said: str, tmp_path: Path
) -> None:
    assert refusal(file, tmp_path=tmp_path) == said


@pytest.mark.parametrize(
    "url", ["http://broker", "broker.example:6650", "http://a:1/x", "ftp://a:1"]
)
def test_url_without_scheme_or_port_is_refused(url: str) -> None:
    for setting in ("listen.advertised_url", "listen.connect_url"):
        said = refusal(flags={setting: url})
        assert said.startswith(f"config.{setting}: expected a URL")


@pytest.mark.parametrize(
    "url", ["http://broker:6650", "https://broker.example:443", "http://[::1]:6650"]
)
def test_complete_urls_are_accepted(url: str) -> None:
    assert load(flags={"listen.advertised_url": url}).listen.advertised_url == url


def test_error_of_a_group_names_the_setting(tmp_path: Path) -> None:
    said = refusal("storage: {journal: {file_bytes_max: -1}}", tmp_path=tmp_path)
    assert said.startswith("config.storage.journal.file_bytes_max: expected")


def test_overrides_do_not_hide_errors_in_the_file(
    tmp_path: Path,
) -> None:
    assert "config.listen" in refusal(
        "listen: 5", environ={"DANUBE_LISTEN__HTTP_PORT": "1"}, tmp_path=tmp_path
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "DANUBE_LISTEN__STREAMPORT",
            "1",
            (
                "environment: unknown variable 'DANUBE_LISTEN__STREAMPORT', "
                "did you mean 'DANUBE_LISTEN__STREAM_PORT'?"
            ),
        ),
        (
            "DANUBE_ULR",
            "x",
            "environment: unknown variable 'DANUBE_ULR', did you mean 'DANUBE_URL'?",
        ),
        (
            "DANUBE_STREM_PORT",
            "7000",
            (
                "environment: unknown variable 'DANUBE_STREM_PORT', "
                "did you mean 'DANUBE_LISTEN__STREAM_PORT'?"
            ),
        ),
        (
            "DANUBE_LISTEN_STREAM_PORT",
            "7000",
            (
                "environment: unknown variable 'DANUBE_LISTEN_STREAM_PORT', "
                "did you mean 'DANUBE_LISTEN__STREAM_PORT'?"
            ),
        ),
        ("DANUBE_QQ", "x", "environment: unknown variable 'DANUBE_QQ'"),
        (
            "DANUBE_CONSOLE__PORT",
            "8080",
            (
                "environment: unknown variable 'DANUBE_CONSOLE__PORT'; "
                "pip install 'pydanube[console]' brings it"
            ),
        ),
        (
            "DANUBE_LISTEN__STREAM_PORT",
            "many",
            "DANUBE_LISTEN__STREAM_PORT: expected int, got str",
        ),
        (
            "DANUBE_LISTEN__STREAM_PORT",
            "-1",
            "DANUBE_LISTEN__STREAM_PORT: expected int >= 0",
        ),
        (
            "DANUBE_TOPICS__AUTO_CREATE",
            "perhaps",
            "DANUBE_TOPICS__AUTO_CREATE: expected bool, got str",
        ),
    ],
)
def test_error_in_the_environment_names_the_variable(
    name: str, value: str, said: str
) -> None:
    assert refusal(environ={name: value}) == said


KUBERNETES = {
    "DANUBE_SERVICE_HOST": "10.96.0.7",
    "DANUBE_SERVICE_PORT": "6650",
    "DANUBE_SERVICE_PORT_GRPC": "6650",
    "DANUBE_SERVICE_PORT_STREAM_TLS": "6651",
    "DANUBE_PORT": "tcp://10.96.0.7:6650",
    "DANUBE_PORT_6650_TCP": "tcp://10.96.0.7:6650",
    "DANUBE_PORT_6650_TCP_PROTO": "tcp",
    "DANUBE_PORT_6650_TCP_PORT": "6650",
    "DANUBE_PORT_6650_TCP_ADDR": "10.96.0.7",
    "DANUBE_BROKER_HEADLESS_SERVICE_HOST": "10.96.0.8",
    "DANUBE_BROKER_HEADLESS_PORT": "udp://[fd00::8]:6651",
}


def test_variables_of_kubernetes_services_are_ignored_and_listed() -> None:
    environ = {"HOME": "/", "DANUBE_DATA_DIR": "here", **KUBERNETES}
    assert load(environ=environ) == config_type()(data_dir=Path("here"))
    assert ignored_variables(environ) == sorted(KUBERNETES)


def test_variables_of_the_original_danube_are_ignored_and_listed() -> None:
    environ = dict.fromkeys(ORIGINAL_VARIABLES, "x")
    assert load(environ=environ) == config_type()()
    assert ignored_variables(environ) == sorted(ORIGINAL_VARIABLES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DANUBE_PORT", "7000"),
        ("DANUBE_SERVICE_PORT", "tcp"),
        ("DANUBE_LISTEN__SERVICE_HOST", "10.0.0.1"),
        ("DANUBE_PORT_6650_TCP_NAME", "x"),
    ],
)
def test_variables_that_kubernetes_does_not_set_are_refused(
    name: str, value: str
) -> None:
    assert repr(name) in refusal(environ={name: value})
    assert ignored_variables({name: value}) == []


def test_no_setting_is_ignored() -> None:
    for setting in settings_of():
        for value in ("1", "tcp://10.0.0.1:1"):
            assert not ignored_variables({setting.variable: value})


def test_flag_out_of_range_is_refused() -> None:
    said = refusal(flags={"listen.http_port": 70_000})
    assert said == "config.listen.http_port: expected int <= 65535"


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"nowhere\.yaml cannot be read"):
        load_config(tmp_path / "nowhere.yaml", {}, {})


@pytest.mark.parametrize("file", ["a: b: c", "- a\n- b", "just text", "\t- x"])
def test_file_without_settings_is_refused(file: str, tmp_path: Path) -> None:
    assert "danube.yaml" in refusal(file, tmp_path=tmp_path)


def test_file_cannot_construct_python_objects(tmp_path: Path) -> None:
    assert "is not YAML" in refusal(
        "data_dir: !!python/object/apply:os.getcwd []", tmp_path=tmp_path
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "etcd"}, r"config\.metadata\.etcd\.endpoints: expected the members"),
        (
            {"kind": "etcd", "path": "a.sqlite", "etcd": {"endpoints": "a:1"}},
            r"config\.metadata\.path: expected nothing, because kind is etcd",
        ),
        (
            {"kind": "etcd", "etcd": {"endpoints": "ftp://a"}},
            r"config\.metadata\.etcd\.endpoints: expected http://HOST:PORT",
        ),
        (
            {"kind": "consul"},
            r"config\.metadata\.kind: expected one of sqlite, etcd, zookeeper",
        ),
        (
            {"kind": "zookeeper"},
            r"config\.metadata\.zookeeper\.endpoints: expected the members",
        ),
        ({"etcd": {"cluster_name": "a/b"}}, r"config\.metadata\.etcd\.cluster_name"),
    ],
)
def test_settings_of_metadata_that_cannot_work_are_refused(tmp_path, values, message):
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps({"metadata": values}))
    with pytest.raises(InvalidConfig, match=message):
        load_config(path, {}, {})


CLUSTERED = {
    "metadata": {"kind": "etcd", "etcd": {"endpoints": "http://e:2379"}},
    "storage": {"remote": {"url": "s3://bucket"}, "journal": {"kind": "object"}},
    "cluster": {"enabled": True},
}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metadata": {}}, "expected metadata.kind etcd.*, got sqlite"),
        ({"storage": {}}, "expected storage.journal.kind object.*, got local"),
        (
            {"listen": {"stream_port": 0}},
            "cluster.advertised_url: expected the address",
        ),
        (
            {"cluster": {"advertised_url": "http://b:6651"}},
            r"config\.cluster\.advertised_url: expected a URL.*danube://",
        ),
        ({"cluster": {"shards": 0}}, r"config\.cluster\.shards"),
    ],
)
def test_settings_of_clusters_that_cannot_work_are_refused(tmp_path, values, message):
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps(CLUSTERED))
    assert load_config(path, {}, {}).cluster.shards == 256
    path.write_text(json.dumps(CLUSTERED | values))
    with pytest.raises(InvalidConfig, match=message):
        load_config(path, {}, {})


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_the_password_of_a_service_comes_from_the_environment(kind):
    environ = {
        f"DANUBE_METADATA__{kind.upper()}__USER": "danube",
        f"DANUBE_METADATA__{kind.upper()}__PASSWORD": "open sesame",
    }
    metadata = load_config(None, environ, {}).metadata
    assert getattr(metadata, kind).password == "open sesame"


def test_a_cluster_may_have_its_metadata_in_zookeeper(tmp_path):
    path = tmp_path / "broker.yaml"
    metadata = {"kind": "zookeeper", "zookeeper": {"endpoints": "zk:2181"}}
    path.write_text(json.dumps(CLUSTERED | {"metadata": metadata}))
    remote = load_config(path, {}, {}).metadata.remote
    assert (remote.SERVICE, remote.endpoints) == ("ZooKeeper", "zk:2181")
