"""A mail server in a thread, which keeps the mails that it gets."""

from __future__ import annotations

import ssl
from email import message_from_bytes, policy

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from support.servers.certificates import write_certificates
from support.servers.ports import free_port

USER, PASSWORD = b"danube", b"sesame"


class MailServer:
    """A server with STARTTLS and a user; it answers as the test says."""

    def __init__(self, directory) -> None:
        self.mails = []
        self.answers = []
        """The next answers to mails; then it accepts them."""
        files = write_certificates(directory)
        self.ca_file, _ = files["ca"]
        self.port = free_port()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files["server"])
        self._controller = Controller(
            self,
            hostname="127.0.0.1",
            port=self.port,
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            authenticator=_authenticate,
        )

    def __enter__(self) -> MailServer:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802
        if address.startswith("nobody@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
        if self.answers and (answer := self.answers.pop(0)):
            return answer
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


def _authenticate(_server, _session, _envelope, _mechanism, data):
    is_known = (data.login, data.password) == (USER, PASSWORD)
    return AuthResult(success=is_known, handled=False)
