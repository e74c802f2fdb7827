"""A sink that sends messages as mails, for alerts."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from email.message import EmailMessage
from email.utils import parseaddr
from enum import Enum
from typing import Annotated, Self

from msgspec import Meta

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube_connect.connector import Sink
from pydanube_connect.option_problems import duration_problems, file_problems
from pydanube_connect.pure.failures import ConnectorFailed, Rejected, Transient
from pydanube_connect.sinks.mails import (
    MailLimit,
    mail_of,
    new_mail,
    not_mailed,
)
from pydanube_connect.sinks.pure.message_templates import template_problem

log = logging.getLogger("pydanube_connect")

PER_MINUTE_MAX = 1000


class Security(Enum):
    """How the connection is encrypted."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class MailOptions(Section, frozen=True, kw_only=True):
    """The options of ``MailSink``."""

    host: Annotated[str, Meta(description="The mail server.")]
    port: Annotated[int, Meta(description="The port of the mail server.")] = 587
    security: Annotated[
        Security,
        Meta(
            description="Whether the connection begins TLS with `STARTTLS`, uses TLS "
            "from the beginning (often at the port 465), or neither."
        ),
    ] = Security.STARTTLS
    username: Annotated[str | None, Meta(description="The user name.")] = None
    password: Annotated[str | None, Meta(description="The password.")] = None
    ca_file: Annotated[
        str | None,
        Meta(description="The authorities to trust; by default those of the system."),
    ] = None
    sender: Annotated[
        str, Meta(description="The sender, such as `Danube <danube@example.com>`.")
    ]
    to: Annotated[list[str], Meta(description="The recipients.")]
    subject: Annotated[
        str,
        Meta(
            description="The subject, in which `{topic}`, `{key}`, `{offset}` and "
            "`{payload}` stand for those of the message, and `{value.FIELD}` for a "
            "field of its JSON."
        ),
    ] = "{topic}: message {offset}"
    body: Annotated[
        str, Meta(description="The text, with the same names as the subject.")
    ] = "{payload}"
    per_minute: Annotated[
        int,
        Meta(
            description="The maximum number of mails within a minute; how many "
            "messages were not mailed is in the next mail."
        ),
    ] = 10
    timeout: Annotated[str, Meta(description="The timeout of the server.")] = "30s"


class MailSink(Sink):
    """
    Sends each message as a mail, for alerts, up to a number of mails per minute.

    Delivery: at least once; a repeated mail has the same `Message-ID`.
    """

    Options = MailOptions

    def __init__(self, options: MailOptions) -> None:
        super().__init__(options)
        self._limit = MailLimit(options.per_minute)
        self._resources = AsyncExitStack()
        self._tasks: TaskScope
        self._is_summary_due = False
        # What is done of a batch whose writing failed.  The mails: None if the limit
        # does not allow it.  The answers: why the server rejects the mail, if it does.
        self._mails: dict[tuple[str, int], EmailMessage | None] = {}
        self._answered: dict[tuple[str, int], str | None] = {}

    @classmethod
    def problems(cls, options: MailOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        if not options.host:
            found["host"] = "must not be empty"
        for name, addresses in (("sender", [options.sender]), ("to", options.to)):
            wrong = [each for each in addresses if not _is_address(each)]
            if wrong:
                found[name] = f"{wrong[0]!r} is not a mail address"
        if not options.to:
            found["to"] = "must not be empty"
        for name in ("subject", "body"):
            problem = template_problem(getattr(options, name))
            if problem is not None:
                found[name] = problem
        if not 1 <= options.per_minute <= PER_MINUTE_MAX:
            found["per_minute"] = f"must be 1 to {PER_MINUTE_MAX:,}"
        if (options.username is None) is not (options.password is None):
            found["username"] = "goes with a password"
        elif options.username is not None and options.security is Security.NONE:
            found["security"] = "must be starttls or tls, to protect the password"
        found |= file_problems(options, "ca_file")
        return found | duration_problems(options, "timeout")

    async def __aenter__(self) -> Self:
        self._tasks = await self._resources.enter_async_context(task_scope())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()
        if count := self._limit.take_suppressed():
            log.warning("%s", not_mailed(count))

    async def check(self) -> None:
        """Connect, and log in."""
        await asyncio.to_thread(self._send, [])

    async def write(self, messages: Sequence[Message]) -> None:
        """Send a mail for each message that the limit allows; see ``Sink.write``."""
        for message in messages:
            if message.id not in self._mails:
                self._mails[message.id] = self._mail_of(message)
        mails = [
            (message_id, mail)
            for message_id, mail in self._mails.items()
            if mail is not None and message_id not in self._answered
        ]
        if mails:
            await asyncio.to_thread(self._send, mails)
        reasons = [self._answered.get(each.id) for each in messages]
        self._mails.clear()
        self._answered.clear()
        self._summarise_later()
        rejected = {at: reason for at, reason in enumerate(reasons) if reason}
        if rejected:
            raise Rejected(rejected)

    def _mail_of(self, message: Message) -> EmailMessage | None:
        """Return the mail for *message*; None: the limit does not allow it."""
        options: MailOptions = self.options
        if not self._limit.allows(asyncio.get_running_loop().time()):
            return None
        return mail_of(
            message,
            sender=options.sender,
            to=options.to,
            subject=options.subject,
            body=options.body,
            suppressed=self._limit.take_suppressed(),
        )

    def _summarise_later(self) -> None:
        """Let a mail say what was not mailed, unless another one does so before."""
        if self._limit.suppressed and not self._is_summary_due:
            self._is_summary_due = True
            self._tasks.run(self._summarise())

    async def _summarise(self) -> None:
        loop = asyncio.get_running_loop()
        options: MailOptions = self.options
        while self._limit.suppressed:
            if wait_s := self._limit.wait_s(loop.time()):
                await asyncio.sleep(wait_s)
                continue
            self._limit.allows(loop.time())
            text = not_mailed(self._limit.take_suppressed())
            log.warning("%s", text)
            mail = new_mail(options.sender, options.to, text)
            mail.set_content(text)
            try:
                await asyncio.to_thread(self._send, [(None, mail)])
            except (Transient, ConnectorFailed) as error:
                log.warning("the mail that says so could not be sent: %s", error)
        self._is_summary_due = False

    def _send(
        self, mails: Sequence[tuple[tuple[str, int] | None, EmailMessage]]
    ) -> None:
        """Send *mails* over one connection, in a thread, and note the answers."""
        with _translated(), self._connected() as server:
            for message_id, mail in mails:
                reason = None
                try:
                    refused = server.send_message(mail)
                except smtplib.SMTPDataError as error:
                    if not _is_final(error.smtp_code):
                        raise
                    reason = _text_of(error)
                else:
                    for address in refused:
                        log.warning("the mail server refuses the recipient %s", address)
                if message_id is not None:
                    self._answered[message_id] = reason

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        options: MailOptions = self.options
        timeout_s = parse_duration(options.timeout)
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.security is Security.TLS:
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                options.host, options.port, timeout=timeout_s, context=context
            )
        else:
            server = smtplib.SMTP(options.host, options.port, timeout=timeout_s)
        with server:
            if options.security is Security.STARTTLS:
                server.starttls(context=context)
            if options.username is not None and options.password is not None:
                server.login(options.username, options.password)
            yield server


def _is_address(text: str) -> bool:
    name, at, domain = parseaddr(text)[1].partition("@")
    return bool(name and at and domain) and text.isprintable()


def _is_final(code: int) -> bool:
    return code >= 500


def _text_of(error: smtplib.SMTPResponseException) -> str:
    text = error.smtp_error
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"the mail server answers {error.smtp_code}: {' '.join(shown.split())}"


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of ``smtplib``, all of them OSError, as those of connectors."""
    try:
        yield
    except smtplib.SMTPRecipientsRefused as error:
        [(address, (code, _)), *_] = error.recipients.items()
        text = f"the mail server refuses the recipient {address} with {code}"
        raise (ConnectorFailed(text) if _is_final(code) else Transient(text)) from error
    except smtplib.SMTPConnectError as error:
        raise Transient(_text_of(error)) from error
    except smtplib.SMTPResponseException as error:
        kind = ConnectorFailed if _is_final(error.smtp_code) else Transient
        raise kind(_text_of(error)) from error
    except smtplib.SMTPNotSupportedError as error:
        raise ConnectorFailed(f"the mail server: {error}") from error
    except OSError as error:
        raise Transient(f"no mail server: {type(error).__name__}: {error}") from error
