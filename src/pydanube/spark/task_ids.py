"""
The identity of a Spark task, by which sinks recognize repeated batches.

Spark repeats a failed task, and it repeats a whole micro-batch if the driver was killed
before the end of the batch.  The query id and the batch number are then the same.  A
sink that stores the last batch number of each query can recognize the repetition.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class TaskId:
    """One attempt of one task of a query."""

    query: str
    """The query id from the checkpoint; for a batch write, the job id."""
    batch: int
    """The number of the micro-batch; 0 for a batch write."""
    partition: int
    attempt: int
    """Unique among all tasks of this Spark application."""


def current_task_id(job: str) -> TaskId:
    """
    Return the id of the Spark task that calls this.

    Without a streaming query, *job* is used as the query id.
    """
    context = TaskContext.get()
    assert context is not None, "current_task_id is called outside a task"
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return TaskId(
        query=query or job,
        batch=int(batch) if batch else 0,
        partition=context.partitionId(),
        # Files are named after it, and two attempts must not share a name.
        attempt=context.taskAttemptId(),
    )
