"""The current or last runs of pipelines, as their state directories have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pipelines.pure.progress import RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord, state_shown
from pydanube_spark.pipelines.run_directory import run_directory
from pydanube_spark.pipelines.state import StateDirectory

LOCAL = "local"
"""The word for all pipelines that the user has run on this machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """The record and the status of the current or last run of a pipeline."""

    name: str
    state: StateDirectory
    record: RunRecord | None
    status: RunStatus | None
    is_running: bool

    @classmethod
    def of(cls, name: str, state: StateDirectory) -> Run:
        """Return the current or last run of the pipeline *name*."""
        # The lock comes first: a run that ends later has recorded its end.
        is_running = state.is_locked()
        return cls(name, state, state.read_record(), state.read_status(), is_running)

    @property
    def exists(self) -> bool:
        """Return whether the pipeline was ever run."""
        return self.record is not None

    @property
    def shown(self) -> str:
        """Return the state for people."""
        return state_shown(self.record, self.status, is_running=self.is_running)

    @property
    def last_error(self) -> str | None:
        """Return the error of the run, or the last one of its queries."""
        if self.status is None:
            return None
        errors = [each for each in self.status.queries if each.error is not None]
        errors.sort(key=lambda each: each.last_error_time or 0)
        return self.status.error or (errors[-1].error if errors else None)


def runs_of(given: Sequence[str]) -> list[Run]:
    """
    Return the runs in the state directories *given*; ``local``: those of the user.

    A pipeline that was never run is left out.

    Raises:
        InvalidRequest: There is no such directory.
    """
    found: dict[Path, Run] = {}
    for each in given:
        if each == LOCAL:
            for entry in run_directory().entries():
                found[entry.state.path] = Run.of(entry.pipeline, entry.state)
        elif Path(each).is_dir():
            run = Run.of(Path(each).name, StateDirectory(Path(each)))
            name = run.name if run.record is None else run.record.pipeline
            found[run.state.path] = replace(run, name=name)
        else:
            raise InvalidRequest(
                f"{each} is not the state directory of a pipeline, which 'danube "
                "pipeline list --format json' shows as state_directory"
            )
    return [each for each in found.values() if each.exists]
