"""The prefixes of values, by the schemas of the registry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from pydanube.model.errors import SchemaNotFound
from pydanube.schemas.pure.confluent_schemas import parts_of
from pydanube_broker.broker.publishing.schema_registry import SchemaRegistry
from pydanube_kafka.pure.value_prefix import ValuePrefix, prefix_of

VERSIONS_MAX = 10_000
UNKNOWN_S = 1.0
"""How long an unknown id is not looked up again: values that begin with zeros by chance
must not cost a request to the metadata store each."""


class SchemaPrefixes:
    """
    The prefixes of the versions that were used last.

    What a version and its id mean never changes, also if the version is deleted.

    Bounds: ``VERSIONS_MAX`` versions.
    """

    def __init__(self, registry: SchemaRegistry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock
        # With the time until which an unknown version is not looked up again.
        self._known: OrderedDict[
            tuple[int, int], tuple[ValuePrefix | None, float | None]
        ] = OrderedDict()

    async def find(self, schema_id: int, version: int) -> ValuePrefix | None:
        """
        Return the prefix of a version; None if its values have none.

        Raises:
            Unavailable: The metadata store does not answer.
        """
        key = schema_id, version
        known = self._known.get(key)
        if known is not None and (known[1] is None or self._clock() < known[1]):
            self._known.move_to_end(key)
            return known[0]
        encoding = await self._registry.encoding(schema_id, version)
        if encoding is None:
            self._keep(key, None, self._clock() + UNKNOWN_S)
            return None
        prefix = prefix_of(schema_id, version, encoding.type, encoding.message_path)
        self._keep(key, prefix, None)
        return prefix

    async def find_all(self, ids: Iterable[int]) -> dict[int, ValuePrefix]:
        """
        Return the prefixes by *ids* of Confluent's registry, up to an unknown one.

        Raises:
            Unavailable: The metadata store does not answer.
        """
        found = dict[int, ValuePrefix]()
        for number in ids:
            try:
                prefix = await self.find(*parts_of(number))
            except SchemaNotFound:
                break
            if prefix is None:
                break
            found[number] = prefix
        return found

    def _keep(
        self, key: tuple[int, int], prefix: ValuePrefix | None, until: float | None
    ) -> None:
        self._known[key] = prefix, until
        self._known.move_to_end(key)
        while len(self._known) > VERSIONS_MAX:
            self._known.popitem(last=False)
