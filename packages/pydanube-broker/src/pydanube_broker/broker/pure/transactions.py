"""Which transaction of each query is the newest; earlier ones are fenced.  Pure."""

from __future__ import annotations

from pydanube.model.errors import TransactionFenced


class Transactions:
    """
    The newest transaction of each query.

    Bounds: *queries_max* are known.  With more, the oldest of the owner that has most
        is fenced, so that nobody can fence the transactions of others.
    """

    def __init__(self, queries_max: int) -> None:
        self._queries_max = queries_max
        self._versions: dict[str, int] = {}
        self._by_owner: dict[str, dict[str, None]] = {}

    def begin(self, query: str, version_min: int, *, owner: str = "") -> int:
        """Return the version of a new transaction, at least *version_min*."""
        version = max(version_min, self._versions.get(query, -1) + 1)
        self._forget(query)
        self._versions[query] = version
        self._by_owner.setdefault(owner, {})[query] = None
        if len(self._versions) > self._queries_max:
            most = max(self._by_owner, key=lambda each: len(self._by_owner[each]))
            self._forget(next(iter(self._by_owner[most])))
        return version

    def _forget(self, query: str) -> None:
        self._versions.pop(query, None)
        for owner, queries in list(self._by_owner.items()):
            if query in queries:
                del queries[query]
                if not queries:
                    del self._by_owner[owner]

    def knows(self, query: str) -> bool:
        """Return whether the newest transaction of *query* is known."""
        return query in self._versions

    def check_not_fenced(self, query: str, version: int) -> None:
        """
        Raise if a newer transaction of *query* than *version* is known.

        Raises:
            TransactionFenced: There is one.
        """
        if self._versions.get(query, version) > version:
            raise _fenced(query)

    def check(self, query: str, version: int) -> None:
        """
        Raise unless *version* is the newest transaction of *query*.

        Raises:
            TransactionFenced: It is not, or this broker does not know it.
        """
        newest = self._versions.get(query)
        if newest is None:
            raise TransactionFenced(
                f"the broker has restarted since this transaction of {query} began, "
                "and has not committed it; begin another one, and process again what "
                "is delivered again"
            )
        if newest != version:
            raise _fenced(query)


def _fenced(query: str) -> TransactionFenced:
    return TransactionFenced(
        f"a newer transaction of {query} has begun, perhaps in another program; let "
        "each program that runs at the same time use a name of its own"
    )
