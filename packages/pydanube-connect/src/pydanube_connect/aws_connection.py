"""
Clients of AWS, whose calls block in threads of their own.

botocore alone is enough, and is what boto3 and aiobotocore are made of: boto3 would add
its resources, and aiobotocore an HTTP client and a fixed version of botocore.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from pydanube.declarations.pure.sections import Section
from pydanube.model.redaction import mask
from pydanube_connect.option_problems import http_problems
from pydanube_connect.pure.failures import ConnectorFailed, Transient

CONNECT_S = 10
READ_S = 30

_TEMPORARY = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttled",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Errors below 500 after which the same request may succeed."""


class AwsAccess(Section, frozen=True, kw_only=True):
    """The options that connectors for AWS share."""

    region: Annotated[
        str | None,
        Meta(
            description="The region, such as `eu-central-1`; by default as AWS's own "
            "tools find it."
        ),
    ] = None
    access_key_id: Annotated[
        str | None,
        Meta(
            description="The key; by default credentials come from where AWS's own "
            "tools find them, such as the environment or the role of the machine."
        ),
    ] = None
    secret_access_key: Annotated[
        str | None, Meta(description="The secret of the key.")
    ] = None
    session_token: Annotated[
        str | None, Meta(description="The token of temporary credentials.")
    ] = None
    endpoint: Annotated[
        str | None,
        Meta(description="The URL of another server with the same interface."),
    ] = None


def aws_problems(options: AwsAccess) -> dict[str, str]:
    """Return what is wrong with the access, by option."""
    found = {}
    if options.endpoint is not None and http_problems(options.endpoint):
        found["endpoint"] = http_problems(options.endpoint)["url"]
    if (options.access_key_id is None) != (options.secret_access_key is None):
        found["secret_access_key"] = "goes with an access_key_id"  # noqa: S105
    return found


class AwsClient:
    """A client of one service."""

    def __init__(
        self, service: str, options: AwsAccess, threads: ThreadPoolExecutor
    ) -> None:
        """Prepare a client, which *threads* call."""
        self._service = service
        self._options = options
        self._threads = threads
        self._client: Any = None

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """
        Return the answer to *operation*, a method of botocore.

        Cancellation: The call goes on in its thread.

        Raises:
            Transient: It may succeed later.
            AwsRefused: AWS refuses the request.
            ConnectorFailed: The options or credentials are no use.
        """
        loop = asyncio.get_running_loop()
        work = partial(self._call, operation, parameters)
        answer: dict[str, Any] = await loop.run_in_executor(self._threads, work)
        return answer

    def _call(self, operation: str, parameters: dict[str, Any]) -> Any:
        from botocore.exceptions import (  # noqa: PLC0415
            BotoCoreError,
            ClientError,
            HTTPClientError,
            MetadataRetrievalError,
        )
        from botocore.exceptions import ConnectionError as NoConnection  # noqa: PLC0415
        from botocore.parsers import ResponseParserError  # noqa: PLC0415

        temporary = (
            NoConnection,
            HTTPClientError,
            MetadataRetrievalError,
            OSError,
            # Proxies answer with pages.
            ResponseParserError,
        )

        try:
            if self._client is None:
                self._client = self._open()
            return getattr(self._client, operation)(**parameters)
        except ClientError as error:
            raise self._failure(error.response) from error
        except temporary as error:
            raise Transient(self._text(str(error))) from error
        except (BotoCoreError, ValueError) as error:
            # Among others: there is no region, or there are no credentials.
            raise ConnectorFailed(self._text(str(error))) from error

    def _open(self) -> Any:
        from botocore.config import Config  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415

        options = self._options
        # The connector repeats requests itself.
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"total_max_attempts": 1},
        )
        return Session().create_client(
            self._service,
            region_name=options.region,
            endpoint_url=options.endpoint,
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            aws_session_token=options.session_token,
            config=config,
        )

    def _failure(self, response: Any) -> Exception:
        facts = response.get("Error", {})
        code = str(facts.get("Code", ""))
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = self._text(f"{facts.get('Message', 'no reason')} ({code})")
        if status >= 500 or code in _TEMPORARY:
            return Transient(text)
        return AwsRefused(text, code)

    def _text(self, reason: str) -> str:
        secrets = (self._options.secret_access_key, self._options.session_token)
        return mask(f"{self._service}: {reason}", [each for each in secrets if each])


class AwsRefused(ConnectorFailed):
    """AWS refuses a request."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


@asynccontextmanager
async def aws_client(
    service: str, options: AwsAccess, *, calls_max: int = 1
) -> AsyncIterator[AwsClient]:
    """Open a client with at most *calls_max* calls at the same time."""
    threads = ThreadPoolExecutor(calls_max, thread_name_prefix=service)
    try:
        yield AwsClient(service, options, threads)
    finally:
        # A call that is under way ends by itself.
        threads.shutdown(wait=False, cancel_futures=True)
