"""The patch fuzzer as a figure."""

from __future__ import annotations

from benchmarks.live.fuzz import fuzz
from benchmarks.measure import Row


async def measure(full: bool) -> list[Row]:
    documents, changes = (10_000, 100) if full else (60, 100)
    result = await fuzz(documents, changes)
    size = f"{result.documents} documents × {changes} patches, 4 devices each"
    return [
        Row(
            f"devices that end with another document ({size})",
            str(len(result.unequal)),
            f"{result.frames} frames, {result.disturbances} of them dropped, doubled, overtaken, or the line cut",
            "",
            "0",
            not result.unequal,
        ),
        Row(
            "requests for the document, of any device for each disturbance",
            f"{result.most_resyncs_per_disturbance:.2f} at most",
            f"{result.resyncs} in all",
            "",
            "≤ 1",
            result.most_resyncs_per_disturbance <= 1,
        ),
    ]
