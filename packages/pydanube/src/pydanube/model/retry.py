"""The delays after which something that failed is tried again."""

from __future__ import annotations

from collections.abc import Callable

from pydanube.model.lazy_dataclasses import dataclass

# More doublings exceed any limit, and would overflow a float in the end.
_DOUBLINGS_MAX = 100


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries after delays that double from *first_s* up to *max_s*."""

    first_s: float
    max_s: float
    retries_max: int | None = None
    """None: no limit."""

    def allows(self, failures: int) -> bool:
        """Return whether to try again after failure number *failures*, from 1."""
        return self.retries_max is None or failures <= self.retries_max

    def delay_s(
        self, failures: int, random: Callable[[], float] | None = None
    ) -> float:
        """
        Return the delay after failure number *failures*, from 1.

        With *random*, which returns numbers from 0 to 1, the delay is shortened by up
        to half, so that many clients do not retry at the same time.
        """
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        delay_s = min(self.first_s * 2.0**doublings, self.max_s)
        return delay_s if random is None else delay_s * (0.5 + random() / 2)
