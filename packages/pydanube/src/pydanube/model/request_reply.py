"""
The attributes of requests and replies; ``docs/format/request-reply.md`` is normative.
"""

from __future__ import annotations

from pydanube.model.names import SYSTEM_NAMESPACE

REPLY_TO = "x-reply-to"
"""On a request: the topic to which the reply is published."""
CORRELATION_ID = "x-correlation-id"
"""On a request and on its reply: the request that the reply belongs to."""
REPLY_ERROR = "x-reply-error"
"""On a reply: why the request failed."""

REPLY_TOPIC_PREFIX = f"/{SYSTEM_NAMESPACE}/replies-"
"""The beginning of the names of reply topics."""
ERROR_CHARACTERS_MAX = 1024
"""The longest error of a reply; longer ones are truncated."""
