"""The base class of runners: a context manager."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closeable:
    """A context manager that closes itself."""

    def close(self) -> None:
        """Release the runner's resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self.close()
