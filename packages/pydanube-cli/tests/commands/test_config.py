"""Commands take the address of the broker from the context that applies."""

import json

import pytest

from support.drivers.commands import danube
from support.servers.certificates import write_certificates

CONTEXT, VARIABLE, OPTION = (f"danube://127.0.0.1:{port}" for port in (1, 2, 3))


@pytest.fixture
def run(tmp_path):
    """Return a function that runs commands with contexts of their own."""

    def run(*arguments, **variables):
        return danube(*arguments, XDG_CONFIG_HOME=str(tmp_path), **variables)

    return run


def set_prod(run, *options):
    done = run("config", "set", "prod", "--url", CONTEXT, *options)
    assert done.returncode == 0, done.stderr


def test_first_context_is_added_and_used(run):
    assert (
        "has no contexts; 'danube config set' adds one" in run("config", "list").stdout
    )
    set_prod(run)
    assert run("config", "use", "prod").stdout == (
        f"Commands use the context prod, {CONTEXT}.\n"
    )
    assert json.loads(run("config", "list", "--format", "json").stdout) == [
        {"context": "prod", "current": True, "url": CONTEXT, "output_format": None}
    ]


@pytest.mark.parametrize(
    ("words", "variables", "address"),
    [
        ([], {}, CONTEXT),
        (["--context", "prod"], {}, CONTEXT),
        ([], {"DANUBE_CONTEXT": "prod"}, CONTEXT),
        ([], {"DANUBE_URL": VARIABLE}, VARIABLE),
        ([], {"DANUBE_URL": VARIABLE, "DANUBE_CONTEXT": "prod"}, VARIABLE),
    ],
)
def test_option_precedes_the_variable_and_this_the_context(
    run, words, variables, address
):
    set_prod(run, "--use")
    for command in (["topics", "list"], ["lag"]):
        assert f"at {address} " in run(*words, *command, **variables).stderr
        given = run(*words, *command, "--url", OPTION, **variables)
        assert f"at {OPTION} " in given.stderr


def test_named_context_precedes_the_current_one(run):
    set_prod(run, "--use")
    run("config", "set", "test", "--url", VARIABLE)
    run("config", "set", "other", "--url", OPTION)
    named = run("topics", "list", DANUBE_CONTEXT="test")
    assert f"at {VARIABLE} " in named.stderr
    named = run("--context", "other", "topics", "list", DANUBE_CONTEXT="test")
    assert f"at {OPTION} " in named.stderr


def test_hint_names_the_context_of_the_address(run):
    set_prod(run, "--use")
    hint = run("topics", "list").stderr.splitlines()[1]
    assert hint.startswith("hint: the address is that of the context 'prod'; ")
    assert "prod" not in run("topics", "list", "--url", OPTION).stderr


def test_context_and_variable_must_not_contradict_each_other(run):
    set_prod(run)
    done = run("--context", "prod", "topics", "list", DANUBE_URL=VARIABLE)
    assert done.returncode == 2
    assert done.stderr == (
        "error: --context and the variable DANUBE_URL both set --url; unset the "
        "variable, or leave out --context\n"
    )


def test_unknown_context_is_refused(run):
    set_prod(run)
    done = run("--context", "prd", "topics", "list")
    assert done.returncode == 3
    assert "error: there is no context 'prd'; 'danube config list' lists" in done.stderr


def test_passwords_are_never_printed(run):
    url = "danube://ada:geheim@127.0.0.1:1"
    outputs = [
        run("config", "set", "prod", "--url", url, "--use"),
        run("config", "use", "prod"),
        run("config", "list"),
        run("config", "list", "--format", "json"),
        run("config", "show"),
        run("config", "show", "--format", "json"),
        run("topics", "list"),
        run("config", "set", "prod", "--url", url.replace("danube", "http")),
    ]
    for done in outputs:
        assert "geheim" not in done.stdout + done.stderr
    assert "danube://ada:***@127.0.0.1:1" in outputs[2].stdout
    assert "danube://ada:***@127.0.0.1:1" in outputs[6].stderr


def test_output_format_of_the_context_is_a_default(run):
    set_prod(run, "--output-format", "json", "--use")
    assert json.loads(run("config", "show").stdout)["output_format"] == "json"
    assert run("config", "show", "--format", "table").stdout.startswith("Context")


def test_settings_that_are_not_given_are_kept(run):
    set_prod(run, "--output-format", "json")
    set_prod(run)
    assert json.loads(run("config", "show", "prod", "--format", "json").stdout) | {
        "file": ""
    } == {
        "context": "prod",
        "current": False,
        "url": CONTEXT,
        "output_format": "json",
        "file": "",
    }


def test_deleted_context_is_gone(run):
    set_prod(run, "--use")
    assert "It was the current context" in run("config", "delete", "prod").stdout
    assert run("config", "delete", "prod").returncode == 3
    assert "no context is chosen" in run("config", "show").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["new"], "there is no context 'new'; add it with --url URL"),
        (["new", "--url", "http://there"], "'http://there' is not a URL like"),
        (["new name", "--url", CONTEXT], "'new name' is not a name for a context"),
        (["prod"], "nothing to change; use --url, --output-format or --use"),
    ],
)
def test_invalid_context_is_not_saved(run, tmp_path, options, message):
    set_prod(run)
    before = (tmp_path / "danube" / "contexts.toml").read_text()
    done = run("config", "set", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert (tmp_path / "danube" / "contexts.toml").read_text() == before


def test_bad_file_is_an_error_of_one_line(run, tmp_path):
    set_prod(run)
    path = tmp_path / "danube" / "contexts.toml"
    path.write_text("current")
    for command in (["topics", "list"], ["config", "list"], ["config", "use", "prod"]):
        done = run(*command)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: the file of the contexts, {path}, is ")
        assert done.stderr.count("\n") == 1


def test_use_says_which_variables_override_it(run):
    set_prod(run)
    done = run("config", "use", "prod", DANUBE_URL=VARIABLE)
    assert done.stderr == "The variable DANUBE_URL is set, and overrides it.\n"


def completed(run, line):
    done = run(
        _DANUBE_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_names_of_contexts_are_completed(run, tmp_path):
    set_prod(run)
    run("config", "set", "test", "--url", CONTEXT)
    assert completed(run, "danube --context p") == ["prod"]
    assert completed(run, "danube config use ") == ["prod", "test"]
    assert completed(run, "danube config show t") == ["test"]
    (tmp_path / "danube" / "contexts.toml").write_text("current")
    assert completed(run, "danube config use ") == []


def test_files_of_tls_are_stored_with_the_address(run, tmp_path):
    ca_file = write_certificates(tmp_path)["ca"][0]
    url = "danubes://127.0.0.1:1"
    done = run("config", "set", "prod", "--url", url, "--ca-file", str(ca_file))
    assert done.returncode == 0, done.stderr
    run("config", "set", "prod", "--server-name", "broker.example")
    (listed,) = json.loads(run("config", "list", "--format", "json").stdout)
    assert listed["url"] == f"{url}?ca_file={ca_file}&server_name=broker.example"


def test_files_of_tls_need_an_address_with_tls(run, tmp_path):
    ca_file = write_certificates(tmp_path)["ca"][0]
    done = run("config", "set", "prod", "--url", CONTEXT, "--ca-file", str(ca_file))
    assert "ca_file is an option of TLS: use a URL that begins with" in done.stderr
