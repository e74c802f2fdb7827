"""
Which piece of which micro-batch a task writes: the key to writing it once.

Spark runs a task again when it fails, and a whole micro-batch again when the
driver was killed before it was done.  The query and the number of the batch stay
the same then, so a sink that remembers the last batch it has taken of a query
can tell a repetition.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class TaskId:
    """Where in a query a task stands."""

    query: str
    """The query's id, which its checkpoint keeps; a batch write has its own."""
    batch: int
    """The number of the micro-batch; 0 where a batch is written."""
    partition: int
    attempt: int
    """0 for the first try of this run of Spark."""


def current_task_id(job: str) -> TaskId:
    """
    Where the task that calls this stands; *job* stands for the query outside of one.
    """
    context = TaskContext.get()
    assert context is not None, "only a task has a place"
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return TaskId(
        query=query or job,
        batch=int(batch) if batch else 0,
        partition=context.partitionId(),
        # Of all tasks of this Spark, so that two attempts never share a name.
        attempt=context.taskAttemptId(),
    )
