"""The lock on a data folder: one process serves it, and whoever holds it is proven to live.

The system lets go of the lock when its holder ends, however it ends; so a left-over file means nothing.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from dromos.domain.errors import DataFolderLocked, StoreUnavailable

FILE_NAME = "dromos.lock"


class DataFolderLock:
    """An exclusive lock beside the database. Held from `acquire` to `release`, or as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock at once. Raises `DataFolderLocked` naming its holder, `StoreUnavailable` on a bad folder."""
        if self._file is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreUnavailable(
                f"the data folder {self.path.parent} cannot be used ({error.strerror}): check its permissions, or "
                "name another one with --data"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 64, 0).decode(errors="replace").strip()
            os.close(file)
            raise DataFolderLocked(
                f"the data folder {self.path.parent.resolve()} is in use by "
                f"{f'process {holder}' if holder else 'another process'}: stop that one, or name another folder "
                "with --data"
            ) from None
        except OSError as error:
            os.close(file)
            raise StoreUnavailable(
                f"the data folder {self.path.parent} cannot be locked ({error.strerror}): use a local disk"
            ) from error
        with suppress(OSError):  # the number only helps who is refused; a full disk does not cost the lock
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def is_held(self) -> bool:
        """True where another process has it now; nothing is taken or written."""
        if not self.path.exists():
            return False
        with self.path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def release(self) -> None:
        """Let go; safe to repeat. The file stays: removing it would let two processes hold two files."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.ftruncate(file, 0)
            os.close(file)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
