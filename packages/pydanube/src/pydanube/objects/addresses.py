"""
The addresses of object stores: a URL and options.

The URL names the service, the bucket and a prefix: ``s3://bucket/prefix``.  Everything
else is an option of the service, under the name that OpenDAL gives it.  A URL is shown
in logs, metadata and errors, so it must not contain credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from pydanube.model.errors import InvalidConfig
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.plugins import OBJECTS, has_plugin

FILE_SUFFIX = "_file"
"""An option of this ending names a file that contains the value."""

_OPTION_BYTES_MAX = 64 * 1024
"""The most that is read of the file of an option."""

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>.*)")

_SERVICES = {"gs": "gcs", "s3a": "s3", "rediss": "redis"}
"""OpenDAL's names of services whose URLs have another scheme."""

_OPTION_OF_AUTHORITY = {
    "azblob": "container",
    "azdls": "filesystem",
    "b2": "bucket",
    "cos": "bucket",
    "gcs": "bucket",
    "obs": "bucket",
    "oss": "bucket",
    "redis": "endpoint",
    "s3": "bucket",
    "swift": "container",
    "tos": "bucket",
    "upyun": "bucket",
}
"""The option that the part of the URL after ``://`` stands for, by service."""

LOCAL_SCHEMES = ("fs", "file")

# Only these characters of a URL have a meaning elsewhere, so they are likely mistakes.
_QUERY = re.compile(r"[?#]")

_LOCATING = frozenset(
    {
        "account_name",
        "allow_anonymous",
        "db",
        "enable_virtual_host_style",
        "endpoint",
        "region",
        "skip_signature",
    }
)
"""The options that say where a store is and how it is addressed, and no more."""

_SECRET = re.compile(r"credential|key|pass|sas|secret|signature|token|connection")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """An object store, or an object in it, as its URL names it."""

    scheme: str
    authority: str
    """The bucket, the container, or host and port; empty if the service has none."""
    path: str
    """The rest of the URL, literally, without slashes at its beginning."""

    @property
    def service(self) -> str:
        """OpenDAL's name of the service."""
        return _SERVICES.get(self.scheme, self.scheme)

    @property
    def url(self) -> str:
        """The URL; it ends without a slash."""
        path = f"/{self.path}" if self.path else ""
        return f"{self.scheme}://{self.authority}{path}"

    @property
    def is_local(self) -> bool:
        """Whether it is a path in this machine's file system."""
        return self.scheme in LOCAL_SCHEMES

    @property
    def local_path(self) -> Path:
        """The path in this machine's file system."""
        path = unquote(self.path) if self.scheme == "file" else self.path
        return Path("/", path)


def is_plugin_scheme(scheme: str) -> bool:
    """Return whether another package has the stores whose URLs have this scheme."""
    known = {*_OPTION_OF_AUTHORITY, *_SERVICES, *LOCAL_SCHEMES, "memory"}
    return scheme not in known and has_plugin(OBJECTS, scheme)


def parse_store_url(url: str) -> StoreAddress:
    """
    Parse the URL of an object store.

    Raises:
        InvalidConfig: It is malformed or contains credentials.
    """
    address = parse_object_url(url)
    if _QUERY.search(address.path) and address.scheme != "file":
        raise InvalidConfig(
            f"the object store {address.url!r}: the URL of a store has no '?' and no "
            "'#'; give options as options"
        )
    return StoreAddress(address.scheme, address.authority, address.path.rstrip("/"))


def parse_object_url(url: str) -> StoreAddress:
    """
    Parse the URL of an object; its path is literal, except after ``file://``.

    Raises:
        InvalidConfig: It is malformed or contains credentials.
    """
    found = _URL.fullmatch(url)
    # The URL is not shown before it is clear that it contains no credentials.
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InvalidConfig(
            "the URL of the object store contains credentials, before '@'; remove them "
            "and give them as options that name files (such as "
            f"secret_access_key{FILE_SUFFIX}) or in the environment"
        )
    if found is None or "\0" in url:
        raise InvalidConfig(
            f"{url!r} is not the URL of an object store; expected for example "
            "s3://bucket/prefix or fs:///directory"
        )
    address = StoreAddress(
        found["scheme"], found["authority"], found["path"].lstrip("/")
    )
    service = address.service
    if _QUERY.search(address.authority):
        raise InvalidConfig(
            f"the object store {service}: the URL has a '?' or '#' after '://'; give "
            "options as options"
        )
    if service in _OPTION_OF_AUTHORITY and not address.authority:
        raise InvalidConfig(
            f"the object store {address.url!r}: the {_OPTION_OF_AUTHORITY[service]} is "
            f"missing; expected {address.scheme}://"
            f"{_OPTION_OF_AUTHORITY[service].upper()}/PREFIX"
        )
    is_extra = service not in _OPTION_OF_AUTHORITY and bool(address.authority)
    if is_extra and not is_plugin_scheme(address.scheme):
        if address.is_local:
            raise InvalidConfig(
                f"the object store {address.url!r}: the path of a directory is "
                f"absolute; expected {address.scheme}:///{address.authority}/…"
            )
        raise InvalidConfig(
            f"the object store {address.url!r}: expected {address.scheme}:///PREFIX, "
            "and everything else as options"
        )
    return address


def service_options(
    address: StoreAddress, options: Mapping[str, str]
) -> dict[str, str]:
    """
    Return all options for OpenDAL: of the URL, given ones, and those in files.

    Raises:
        InvalidConfig: An option is given twice, or its file cannot be read.
    """
    found = {"root": f"/{address.path}"}
    authority_option = _OPTION_OF_AUTHORITY.get(address.service)
    if authority_option == "endpoint":
        found["endpoint"] = f"{address.scheme}://{address.authority}"
    elif authority_option is not None:
        found[authority_option] = address.authority
    for name in options:
        if name.removesuffix(FILE_SUFFIX) in found:
            raise InvalidConfig(
                f"the object store {address.url!r}: the option {name!r} is part of the "
                "URL; remove the option"
            )
    for name, value in options.items():
        is_file = name.endswith(FILE_SUFFIX)
        option = name.removesuffix(FILE_SUFFIX)
        if is_file and option in options:
            raise InvalidConfig(
                f"the object store {address.url!r}: both {option!r} and {name!r} are "
                "given; remove one of them"
            )
        found[option] = _read_option(address, name, value) if is_file else value
    return found


def is_secret_option(name: str) -> bool:
    """Return whether the value of the option *name* may be a secret."""
    return not name.endswith(FILE_SUFFIX) and bool(_SECRET.search(name.lower()))


def locating_options(options: Mapping[str, str]) -> dict[str, str]:
    """
    Return the *options* that say where a store is, which brokers send to readers.

    The others are credentials, or name files of one machine.
    """
    return {name: value for name, value in options.items() if name in _LOCATING}


def secrets_of(options: Mapping[str, str]) -> frozenset[str]:
    """Return the values of *options* that must not be shown."""
    return frozenset(
        value for name, value in options.items() if value and is_secret_option(name)
    )


def _read_option(address: StoreAddress, name: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            value = file.read(_OPTION_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidConfig(
            f"the object store {address.url!r}: the file {path!r} of the option "
            f"{name!r} cannot be read: {reason}"
        ) from None
    if not value.strip() or len(value) > _OPTION_BYTES_MAX:
        raise InvalidConfig(
            f"the object store {address.url!r}: the file {path!r} of the option "
            f"{name!r} must contain 1 to {_OPTION_BYTES_MAX} bytes"
        )
    # Editors and `echo` add a line break.
    return value.rstrip("\r\n")
