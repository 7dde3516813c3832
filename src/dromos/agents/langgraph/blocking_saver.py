"""The blocking half of a checkpointer, for graphs that call other graphs from a plain function.

Such a function runs in a thread of LangGraph's; its calls are carried out on the event loop that owns the saver. On
that loop itself they would wait for themselves for ever, so there they are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

T = TypeVar("T")


class BlockingSaver(BaseCheckpointSaver[int]):
    """Every blocking method in terms of its asynchronous twin. Subclasses bring those, and set `loop`."""

    loop: asyncio.AbstractEventLoop

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def collect() -> Sequence[CheckpointTuple]:
            return [found async for found in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from self._wait(collect())

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._wait(self.adelete_thread(thread_id))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            work.close()
            raise RuntimeError(
                "A graph was invoked with a blocking call on the event loop. Use `await graph.ainvoke(…)`."
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()
