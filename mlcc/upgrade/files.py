"""Upgrade files of every kind that lasts: texts, schedule scripts, databases of records."""

from __future__ import annotations

import os

from mlcc.errors import CompileError, error
from mlcc.files import read_bytes, write_atomic

_DATABASE = b"SQLite format 3\0"
_ARTIFACTS = (b"\x7fELF", b"!<arch>\n", b"// mlcc manifest", b"PK\x03\x04", b"/*")


def upgrade(path: str, output: str | None, changes_nothing: bool = False) -> bool:
    """Upgrade a file in place, or into `output`, unless `changes_nothing`. Return whether it is an older one.

    A file is replaced at once, by what was read back and found equal in meaning. Raises CompileError.
    """
    data = read_bytes(path)
    if data.startswith(_DATABASE):
        return _upgrade_database(path, output, changes_nothing)
    if data.startswith(_ARTIFACTS):
        help = "an artifact is read for as long as docs/compatibility.md says; compile it again for a newer one"
        raise CompileError(error("E0112", f"{path} is no text, script or database", help=help, file=path))
    return _upgrade_text(path, data, output, changes_nothing)


def _upgrade_text(path: str, data: bytes, output: str | None, changes_nothing: bool) -> bool:
    from mlcc.grammar.syntax.reader import decode
    from mlcc.upgrade.rewrite import upgraded_script, upgraded_text

    text = decode(data, path)
    is_script = path.endswith(".mls")
    made = upgraded_script(text, path) if is_script else upgraded_text(text, path, os.path.dirname(path) or ".")
    if not changes_nothing and (output is not None or made != text):
        write_atomic(output or path, made)
    return made != text


def _upgrade_database(path: str, output: str | None, changes_nothing: bool) -> bool:
    """Convert the tables in a transaction, in the file or in a copy of it."""
    from mlcc.records.database import SCHEMA, Database

    with Database(path, reads_only=True) as database:
        is_older = database.stored_schema < SCHEMA
        if output is not None and not changes_nothing:
            database.copy_to(output)
    if output is None and is_older and not changes_nothing:
        Database(path).close()
    return is_older
