"""Contexts survive the way through their file, and bad files are described."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig, InvalidRequest, NotFound
from pydanube_cli.invocation.contexts import (
    FILE_BYTES_MAX,
    Context,
    Contexts,
    contexts_path,
    format_contexts,
    load_contexts,
    parse_contexts,
    save_contexts,
)

PROD = Context(url="danube://broker.example:6651", output_format="json")
LOCAL = Context(url="danube://127.0.0.1")
BOTH = Contexts({"prod": PROD, "my.local": LOCAL}, current="prod")


def test_file_is_written_for_people():
    assert format_contexts(BOTH).splitlines()[1:] == [
        "",
        'current = "prod"',
        "",
        '[contexts."prod"]',
        'url = "danube://broker.example:6651"',
        'output_format = "json"',
        "",
        '[contexts."my.local"]',
        'url = "danube://127.0.0.1"',
    ]


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True),
        st.text().filter(str.isprintable),
    )
)
def test_contexts_are_read_as_they_were_written(urls):
    contexts = Contexts(
        {name: Context(url=url) for name, url in urls.items()},
        current=next(iter(urls), None),
    )
    assert parse_contexts(format_contexts(contexts)) == contexts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("current =", "it is not valid TOML: Invalid value (at end of document)"),
        ("curent = 'a'", "the setting curent is unknown (did you mean 'current'?)"),
        ("contexts = 1", "contexts is not a table"),
        ("contexts.a = 1", "contexts.a is not a table"),
        ("contexts.a.ulr = 'x'", "the setting contexts.a.ulr is unknown (did you mean"),
        ("contexts.a.url = 1", "contexts.a.url is not a string"),
        ("contexts.a.output_format = 'json'", "contexts.a.url is missing"),
        (
            "[contexts.a]\nurl = 'x'\noutput_format = 'xml'",
            "contexts.a.output_format is 'xml'; it can be table or json",
        ),
        ("contexts.'a b'.url = 'x'", "'a b' is not a name for a context"),
        ('contexts.a.url = "\\n"', "the URL of the context 'a' has characters"),
        ("current = 'a'", "current is 'a', which is not one of the contexts"),
        ("current = []", "current is [], which is not one of the contexts"),
        (b"\xff", "it is not UTF-8"),
        ("#" * (FILE_BYTES_MAX + 1), "it is larger than 1048576 bytes"),
    ],
)
def test_bad_file_is_named_with_the_reason_and_a_remedy(text, reason, tmp_path):
    path = tmp_path / "contexts.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidConfig) as raised:
        load_contexts(path)
    message = str(raised.value)
    assert f"{path}, is invalid: {reason}" in message
    assert "remove it and create the contexts again with 'danube config set'" in message


def test_unreadable_file_is_named(tmp_path):
    with pytest.raises(
        InvalidConfig, match=r"cannot be read \(Is a directory\); make it"
    ):
        load_contexts(tmp_path)


def test_missing_file_has_no_contexts(tmp_path):
    assert load_contexts(tmp_path / "contexts.toml") == Contexts()


def test_saved_file_is_private_and_replaces_the_old_one(tmp_path):
    path = tmp_path / "danube" / "contexts.toml"
    save_contexts(path, Contexts())
    path.chmod(0o644)
    save_contexts(path, BOTH)
    assert load_contexts(path) == BOTH
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "contexts.toml"
    save_contexts(path, BOTH)

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        save_contexts(path, Contexts())
    assert load_contexts(path) == BOTH
    assert list(tmp_path.iterdir()) == [path]


def test_symbolic_link_to_the_file_is_kept(tmp_path):
    target = tmp_path / "dotfiles.toml"
    target.write_text("")
    path = tmp_path / "contexts.toml"
    path.symlink_to(target)
    save_contexts(path, BOTH)
    assert path.is_symlink()
    assert load_contexts(target) == BOTH


def test_deleted_context_is_no_longer_current():
    assert BOTH.without("prod") == Contexts({"my.local": LOCAL}, None)
    assert BOTH.without("my.local").current == "prod"


def test_context_must_exist_and_have_a_valid_name():
    with pytest.raises(NotFound, match=r"no context 'prd'; .* did you mean 'prod'"):
        BOTH.using("prd")
    with pytest.raises(NotFound, match="danube config list"):
        BOTH.without("x")
    for name in ("", "-a", "a b", "a" * 64, "é"):
        with pytest.raises(InvalidRequest, match="not a name for a context"):
            BOTH.with_context(name, LOCAL)


@pytest.mark.parametrize(
    ("variable", "root"),
    [("/etc/user", "/etc/user"), ("", None), ("relative", None)],
)
def test_file_is_in_the_configuration_directory_of_the_user(variable, root):
    path = contexts_path({"XDG_CONFIG_HOME": variable})
    expected = Path(root) if root else Path.home() / ".config"
    assert path == expected / "danube" / "contexts.toml"
