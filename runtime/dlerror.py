"""What the system's loader says when it refuses a library."""

from __future__ import annotations


def said_by(exc: Exception) -> str:
    """The message of an exception of ctypes, readable whatever encoding it is in."""
    if isinstance(exc, UnicodeDecodeError):
        return bytes(exc.object).decode("utf-8", "backslashreplace")
    return str(exc)
