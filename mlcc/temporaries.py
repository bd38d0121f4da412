"""Temporary files beside outputs: named before they exist, so that an interruption at any moment can remove them."""

from __future__ import annotations

import contextlib
import os

_PATHS: set[str] = set()


def make_temporary(folder: str, name: str) -> tuple[int, str]:
    """Create a temporary file for `name` in a folder. Return its descriptor and path.

    `remove_temporaries` removes it unless `forget` is called before.

    Raises OSError.
    """
    while True:
        path = os.path.join(folder, f".{name}.{os.urandom(6).hex()}")
        _PATHS.add(path)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600), path
        except FileExistsError:
            _PATHS.discard(path)
        except OSError:
            _PATHS.discard(path)
            raise


def forget_temporary(path: str) -> None:
    """Unregister a temporary file that has been renamed or removed."""
    _PATHS.discard(path)


def remove_temporaries() -> None:
    """Remove all registered temporary files, before the process ends."""
    for path in list(_PATHS):
        with contextlib.suppress(OSError):
            os.unlink(path)
        _PATHS.discard(path)
