"""The options with which connectors reach servers."""

from pydanube_connect.server_access import ServerAccess, access_problems


def test_files_must_exist_and_need_tls(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("a certificate")
    assert access_problems(ServerAccess(tls=True, ca_file=str(file))) == {}
    assert access_problems(ServerAccess(ca_file=str(file))) == {
        "ca_file": "needs 'tls: true'"
    }
    missing = access_problems(ServerAccess(tls=True, ca_file="missing.pem"))
    assert "missing.pem" in missing["ca_file"]


def test_certificate_and_key_go_together(tmp_path):
    file = tmp_path / "client.pem"
    file.write_text("a certificate")
    found = access_problems(ServerAccess(tls=True, certificate_file=str(file)))
    assert found == {"key_file": "goes with a certificate_file"}
