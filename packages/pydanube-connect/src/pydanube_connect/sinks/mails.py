"""Messages as mails, and the limit of their number.  Pure."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr

from pydanube.client.messages.messages import Message
from pydanube.model.shown_text import excerpt
from pydanube_connect.sinks.pure.message_templates import fill

SUBJECT_CHARACTERS_MAX = 200
BODY_CHARACTERS_MAX = 100_000
WINDOW_S = 60.0


def mail_of(
    message: Message,
    *,
    sender: str,
    to: Sequence[str],
    subject: str,
    body: str,
    suppressed: int = 0,
) -> EmailMessage:
    """
    Return the mail for *message*; *subject* and *body* are templates.

    A repeated message has the same ``Message-ID``.  *suppressed* is the number of
    messages before it that were not mailed.
    """
    mail = new_mail(sender, to, fill(subject, message))
    digest = hashlib.sha256(f"{message.topic}:{message.offset}".encode()).hexdigest()
    domain = parseaddr(sender)[1].rpartition("@")[2]
    mail["Message-ID"] = f"<{digest[:32]}@{domain}>"
    mail["Date"] = format_datetime(message.publish_time)
    text = excerpt(fill(body, message), BODY_CHARACTERS_MAX)
    if suppressed:
        text += f"\n\n{not_mailed(suppressed)}"
    mail.set_content(text)
    return mail


def new_mail(sender: str, to: Sequence[str], subject: str) -> EmailMessage:
    """Return a mail without a body."""
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    # A header is one line of printable characters.
    line = "".join(each if each.isprintable() else " " for each in subject)
    mail["Subject"] = excerpt(" ".join(line.split()), SUBJECT_CHARACTERS_MAX)
    mail["Auto-Submitted"] = "auto-generated"
    return mail


def not_mailed(count: int) -> str:
    """Return a sentence that says that *count* messages were not mailed."""
    messages = "1 message was" if count == 1 else f"{count:,} messages were"
    return f"{messages} not mailed, because of the limit of mails per minute."


class MailLimit:
    """A limit of the number of mails within any minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._times: deque[float] = deque()
        self.suppressed = 0
        """How many messages were not mailed since ``take_suppressed``."""

    def allows(self, now: float) -> bool:
        """Count a mail and return True, or count a suppressed message."""
        while self._times and self._times[0] <= now - WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._per_minute:
            self.suppressed += 1
            return False
        self._times.append(now)
        return True

    def wait_s(self, now: float) -> float:
        """Return how long no mail is allowed."""
        if len(self._times) < self._per_minute:
            return 0.0
        return max(0.0, self._times[0] + WINDOW_S - now)

    def take_suppressed(self) -> int:
        """Return how many messages were not mailed, and begin to count again."""
        count, self.suppressed = self.suppressed, 0
        return count
