"""Error messages of the system's dynamic loader."""

from __future__ import annotations


def loader_message(exc: Exception) -> str:
    """Return the message of an exception of ctypes, with undecodable bytes escaped."""
    if isinstance(exc, UnicodeDecodeError):
        return bytes(exc.object).decode("utf-8", "backslashreplace")
    return str(exc)
