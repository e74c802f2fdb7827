"""
The names and settings by which Spark finds the segments of a broker.

Spark reads files with the file systems of Hadoop, which have other names for stores
than OpenDAL has, and settings of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydanube.objects.addresses import parse_object_url

LOCAL = "file"
"""The scheme of files of one machine."""

ENDPOINT = "fs.s3a.endpoint"
"""The setting for the endpoint of all buckets."""
DEFAULT_ENDPOINT = "s3.amazonaws.com"
"""The endpoint of S3 that Spark sets if nobody does."""

_SCHEMES = {"s3": "s3a", "gcs": "gs"}
"""The schemes of Hadoop's file systems, by OpenDAL's names of services."""

_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws, in the version of Spark's Hadoop",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}
"""The packages of these file systems, as ``spark.jars.packages`` names them."""

_CREDENTIALS = {
    "s3a": "fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key",
    "gs": "fs.gs.auth.type",
}
"""The settings with the credentials of these file systems."""


def hadoop_url(url: str) -> str | None:
    """
    Return the URL by which Hadoop finds the object at *url*; None if it cannot.

    What follows the bucket is literal in both.

    Raises:
        InvalidConfig: *url* is malformed.
    """
    address = parse_object_url(url)
    if address.is_local:
        return f"{LOCAL}:{address.local_path}"
    scheme = _SCHEMES.get(address.service)
    return scheme and f"{scheme}://{address.authority}/{address.path}"


def setting_of_session(
    name: str, found: str | None, given_endpoint: str | None
) -> str | None:
    """
    Return the setting *name* of Hadoop, *found*, unless only Spark has set it.

    *given_endpoint* is the endpoint of all buckets that the session was given, if any.
    """
    is_of_spark = name == ENDPOINT and given_endpoint is None
    return None if is_of_spark and found == DEFAULT_ENDPOINT else found


def store_settings(
    url: str, options: Mapping[str, str], setting: Callable[[str], str | None]
) -> dict[str, str]:
    """
    Return the settings that lead Hadoop to the store of *url*, a URL of Hadoop.

    They are for its bucket alone, and leave out what the session has settings for.

    Args:
        url: The URL of an object.
        options: The options by which the broker locates the store.
        setting: Returns the session's setting of a name, if it has one.
    """
    scheme, _, rest = url.partition("://")
    if scheme != "s3a":
        return {}
    found = {}
    if endpoint := options.get("endpoint"):
        is_virtual = options.get("enable_virtual_host_style") == "true"
        found["endpoint"] = endpoint
        found["path.style.access"] = "false" if is_virtual else "true"
    if region := options.get("region"):
        found["endpoint.region"] = region
    own = f"fs.s3a.bucket.{rest.partition('/')[0]}."
    # The endpoint of a session belongs with its region and its style.
    has_own = any(setting(f"{each}endpoint") for each in ("fs.s3a.", own))
    return {
        own + name: value
        for name, value in found.items()
        if not has_own and setting(own + name) is None
    }


def opened_otherwise(
    url: str, wanted: Mapping[str, str], setting: Callable[[str], str | None]
) -> str | None:
    """
    Return why the store of *url* that is open is another one; None: it is not.

    Hadoop opens a bucket once for each name, also if brokers have buckets of one name.

    Args:
        url: The URL of an object.
        wanted: The settings that lead to the store of the broker.
        setting: Returns the setting of a name with which the store was opened.
    """
    for name, value in wanted.items():
        found = setting(name)
        if found != value:
            return (
                f"this application has opened the bucket of {url} with {name} = "
                f"{found}, and the broker has {value}; read it in an application of "
                "its own"
            )
    return None


def missing_package(url: str) -> str:
    """Return what a session needs that has no file system for *url*."""
    scheme = url.partition("://")[0]
    return (
        f"the session has no file system for {scheme}://; start it with the package "
        f"{_PACKAGES[scheme]} (spark.jars.packages)"
    )


def missing_access(url: str, reason: str) -> str:
    """Return what a session needs that cannot open *url* because of *reason*."""
    scheme = url.partition(":")[0]
    found = f"Spark cannot open {url}: {reason}"
    if scheme == LOCAL:
        return found
    return (
        f"{found}; check spark.hadoop.{_CREDENTIALS[scheme]}, and what else the "
        f"session has for fs.{scheme}, which counts when it first opens the bucket"
    )
