"""The database of a tuner: one SQLite file, safe for concurrent writers and crashes.

Rows are only ever added, each in a transaction of its own (write-ahead log, `synchronous=FULL`); of two writers who
measured the same, the first is kept. So what follows from the records is the same for all who read them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from mlcc.errors import CompileError, Diagnostic, error
from mlcc.records.record import FINAL, TVM, Record, Setting

MEMORY = ":memory:"
APPLICATION, SCHEMA = 0x6D6C6363, 2  # "mlcc"
_CONVERSIONS = {  # to the next schema
    1: ("ALTER TABLE record ADD COLUMN digest TEXT", "UPDATE machine SET floors = '[' || floors || ']'"),
}
BUSY_TIMEOUT = 60.0  # seconds that a writer waits for another
_SETTING = tuple(f.name for f in fields(Setting))
_COLUMNS = tuple(n for f in fields(Record) for n in (_SETTING if f.name == "setting" else (f.name,)))
_IDENTITY = ("workload", *_SETTING, "baseline", "candidate", "stage")
_TYPES = {
    "threads": "INTEGER", "level": "INTEGER", "stage": "INTEGER", "seed": "INTEGER", "batch": "INTEGER",
    "ratio": "REAL", "bound": "REAL",
}  # fmt: skip
_TYPED = ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in _COLUMNS)
_TABLES = (
    "CREATE TABLE workload (hash TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE machine (device TEXT, threads INTEGER, floors TEXT NOT NULL, PRIMARY KEY (device, threads))",
    f"CREATE TABLE record (id INTEGER PRIMARY KEY, {_TYPED}, UNIQUE ({', '.join(_IDENTITY)}))",
)
_INSERT = f"INSERT OR IGNORE INTO record ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)})"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM record"
_BEST = "ORDER BY bound, ratio, candidate"  # the first of the final records of a workload is its winner


class Database:
    """A database at a path, made where there is none; `:memory:` is one that ends with the process.

    Raises CompileError: E1120 for a file that is no database of mlcc's or damaged, E1121 for a disk that is full,
    E1122 for what may not be written or read, E1123 for another schema, E1124 where others write for too long.
    """

    def __init__(self, path: str, *, reads_only: bool = False) -> None:
        self.path = path
        self.stored_schema = SCHEMA  # of the file before it was opened
        with self._sqlite_errors():
            if reads_only and path != MEMORY and not os.path.exists(path):
                raise CompileError(error("E1122", f"there is no database {path}", help="`mlcc tune` writes one"))
            self._connection = _open(path, reads_only)
            try:
                self._prepare(reads_only)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _prepare(self, reads_only: bool) -> None:
        # read the tables first: another process may create them now, together with the pragmas that are read next
        empty = not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application, schema = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if empty and application in (0, APPLICATION):  # new, or its writer was killed before the tables were there
            self._create(reads_only)
        elif application != APPLICATION:
            raise CompileError(error("E1120", f"{self.path} is a database, but not of mlcc's tuning records"))
        elif schema in _CONVERSIONS:
            self.stored_schema = schema
            self._convert(reads_only)
        elif schema != SCHEMA:
            age = "a newer" if schema > SCHEMA else "an older"
            help = "it stays as it is; name another file with --db, or use that version"
            raise CompileError(
                error("E1123", f"{self.path} was written by {age} mlcc: schema {schema}, not {SCHEMA}", help=help)
            )
        if not reads_only:
            self._connection.execute("PRAGMA synchronous=FULL")

    def _create(self, reads_only: bool) -> None:
        """Create the tables; in memory if the file is read-only."""
        if reads_only:
            self._connection.close()
            self._connection = _connect(MEMORY)
        self._connection.execute("PRAGMA journal_mode=WAL")
        with self._transaction():
            if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return  # another process was faster
            for statement in _TABLES:
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA application_id={APPLICATION}")
            self._connection.execute(f"PRAGMA user_version={SCHEMA}")

    def _convert(self, reads_only: bool) -> None:
        """Migrate the tables of an older version to this schema; in a copy in memory if the file is read-only."""
        if reads_only:
            file, self._connection = self._connection, _connect(MEMORY)
            try:
                file.backup(self._connection)
            finally:
                file.close()
        with self._transaction():
            while (schema := self._connection.execute("PRAGMA user_version").fetchone()[0]) < SCHEMA:
                for statement in _CONVERSIONS[schema]:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version={schema + 1}")

    def copy_to(self, path: str) -> None:
        """Write all tables into a new file. Raises CompileError."""
        with self._sqlite_errors(), contextlib.closing(_open(path, False)) as other:
            self._connection.backup(other)

    # ------------------------------------------------------------ writing

    def add(self, records: Sequence[Record], texts: Sequence[tuple[str, str]] = ()) -> None:
        """Add records, and workloads as (hash, text), in one transaction; those that are there stay."""
        with self._sqlite_errors(), self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO workload VALUES (?, ?)", texts)
            self._connection.executemany(_INSERT, map(_row, records))

    def keep_floors(self, device: str, threads: int, floors: object) -> None:
        """Store the peak rates of a machine, as plain data."""
        with self._sqlite_errors(), self._transaction():
            row = (device, threads, json.dumps(floors))
            self._connection.execute("INSERT OR REPLACE INTO machine VALUES (?, ?, ?)", row)

    def merge(self, path: str) -> int:
        """Add the contents of another database; return the number of new records."""
        with Database(path, reads_only=True) as other:
            texts = other._all("SELECT hash, text FROM workload")
            rows = other._all(_SELECT)
            machines = other._all("SELECT device, threads, floors FROM machine")
        with self._sqlite_errors(), self._transaction():
            before = self._connection.total_changes
            self._connection.executemany(_INSERT, rows)
            added = self._connection.total_changes - before
            self._connection.executemany("INSERT OR IGNORE INTO workload VALUES (?, ?)", texts)
            self._connection.executemany("INSERT OR IGNORE INTO machine VALUES (?, ?, ?)", machines)
        return added

    def prune(self, imported: bool = False) -> int:
        """Remove all records but the winner of each workload and setting; return the number of removed ones.

        Records imported from TVM are only removed if `imported` is set.
        """
        with self._sqlite_errors(), self._transaction():
            kept_keys = {_identity(r) for r in self.winners()}
            if not imported:
                kept_keys |= {_identity(r) for r in self.records() if r.setting.device == TVM}
            removed = [
                row[0]
                for row in self._connection.execute(f"SELECT id, {', '.join(_IDENTITY)} FROM record")
                if row[1:] not in kept_keys
            ]
            self._connection.executemany("DELETE FROM record WHERE id = ?", [(row,) for row in removed])
            self._connection.execute("DELETE FROM workload WHERE hash NOT IN (SELECT workload FROM record)")
        with self._sqlite_errors():
            self._connection.execute("VACUUM")
        return len(removed)

    # ------------------------------------------------------------ reading

    def find(self, workload: str, setting: Setting, baseline: str, candidate: str, stage: int) -> Record | None:
        """Return the record of one measurement."""
        where = " AND ".join(f"{name} = ?" for name in _IDENTITY)
        rows = self._all(f"{_SELECT} WHERE {where}", (workload, *astuple(setting), baseline, candidate, stage))
        return _record(rows[0]) if rows else None

    def find_same_code(self, workload: str, setting: Setting, baseline: str, digest: str, stage: int) -> Record | None:
        """Return the first record of a measurement of the same code, of any candidate."""
        names = ("workload", *_SETTING, "baseline", "digest", "stage")
        where = " AND ".join(f"{name} = ?" for name in names)
        values = (workload, *astuple(setting), baseline, digest, stage)
        rows = self._all(f"{_SELECT} WHERE {where} ORDER BY id LIMIT 1", values) if digest else []
        return _record(rows[0]) if rows else None

    def records(self, workload: str | None = None) -> list[Record]:
        """Return all records, or those of a workload, in the order of their addition."""
        if workload is None:
            return [*map(_record, self._all(f"{_SELECT} ORDER BY id"))]
        return [*map(_record, self._all(f"{_SELECT} WHERE workload = ? ORDER BY id", (workload,)))]

    def text(self, workload: str) -> str | None:
        """Return the text of a workload."""
        rows = self._all("SELECT text FROM workload WHERE hash = ?", (workload,))
        return str(rows[0][0]) if rows else None

    def finals(self, workload: str) -> list[Record]:
        """Return the valid final records of a workload under any setting, the best first."""
        where = "WHERE workload = ? AND stage = ? AND status = 'ok' AND bound IS NOT NULL"
        return [*map(_record, self._all(f"{_SELECT} {where} {_BEST}", (workload, FINAL)))]

    def winners(self) -> list[Record]:
        """Return the best final record of each workload and setting, sorted by hash."""
        best: dict[tuple[str, Setting], Record] = {}
        where = "WHERE stage = ? AND status = 'ok' AND bound IS NOT NULL"
        for record in map(_record, self._all(f"{_SELECT} {where} {_BEST}", (FINAL,))):
            best.setdefault((record.workload, record.setting), record)
        return [best[key] for key in sorted(best, key=lambda k: (k[0], astuple(k[1])))]

    def floors(self, device: str, threads: int) -> Any:
        """Return the data stored by `keep_floors`; None if there is none."""
        rows = self._all("SELECT floors FROM machine WHERE device = ? AND threads = ?", (device, threads))
        return json.loads(rows[0][0]) if rows else None

    def digest(self) -> str:
        """Return a hash of everything that builds may use."""
        rows = [(_identity(r), r.trace, r.ratio, r.bound) for r in self.winners()]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def _all(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._sqlite_errors():
            return self._connection.execute(query, values).fetchall()

    # ------------------------------------------------------------ transactions and errors

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the block as one transaction: commit at its end, roll back on an exception."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Convert SQLite errors to diagnostics."""
        try:
            yield
        except sqlite3.Error as exc:
            raise CompileError(_diagnostic(self.path, exc)) from exc


def _open(path: str, reads_only: bool) -> sqlite3.Connection:
    """Open a connection in autocommit mode, for explicit transactions."""
    if path == MEMORY or not reads_only:
        return _connect(path)
    place = Path(os.path.abspath(path)).as_uri()
    link = _connect(f"{place}?mode=ro")
    try:
        link.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:  # a folder that is write-protected has no room for the index of the log
        link.close()
        link = _connect(f"{place}?mode=ro&immutable=1")
    return link


def _connect(place: str) -> sqlite3.Connection:
    is_uri = place.startswith("file:")
    return sqlite3.connect(place, BUSY_TIMEOUT, isolation_level=None, check_same_thread=False, uri=is_uri)


# what SQLite says, by the names of its codes: our code, in words, and what to do
_MEANINGS: tuple[tuple[str, str, str, str], ...] = (
    ("SQLITE_NOTADB", "E1120", "is no database", "name another file with --db"),
    ("SQLITE_CORRUPT", "E1120", "is damaged", "`sqlite3 FILE .recover` saves what can be read"),
    ("SQLITE_FULL", "E1121", "cannot be written", "what it held is there still; free some space and go on"),
    ("SQLITE_IOERR", "E1121", "cannot be written", "what it held is there still; free some space and go on"),
    ("SQLITE_READONLY", "E1122", "may not be written", "check its permissions and those of its folder"),
    ("SQLITE_CANTOPEN", "E1122", "cannot be opened", "check the path and its permissions"),
    ("SQLITE_PERM", "E1122", "cannot be opened", "check the path and its permissions"),
    ("SQLITE_BUSY", "E1124", "is written by others all the time", "write a file of your own and merge it"),
    ("SQLITE_LOCKED", "E1124", "is written by others all the time", "write a file of your own and merge it"),
)


def _diagnostic(path: str, exc: sqlite3.Error) -> Diagnostic:
    name = getattr(exc, "sqlite_errorname", None) or "SQLITE_CORRUPT"  # it raises some errors itself: rows that are odd
    for start, code, words, help in _MEANINGS:
        if name.startswith(start):
            return error(code, f"{path} {words}: {exc}", help=help)
    return error("E1120", f"{path} cannot be used: {exc}", help="it may be damaged, or of another kind")


# ---------------------------------------------------------------- rows


def _row(record: Record) -> tuple[object, ...]:
    values: list[object] = []
    for field in fields(Record):
        value = getattr(record, field.name)
        values += (
            astuple(value) if isinstance(value, Setting) else [json.dumps(value) if isinstance(value, tuple) else value]
        )
    return tuple(values)


def _record(row: tuple[Any, ...]) -> Record:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    setting = Setting(**{name: values.pop(name) for name in _SETTING})
    values |= {name: tuple(json.loads(values[name])) for name in ("ratios", "seconds")}
    values["digest"] = values["digest"] or ""  # not known to older versions
    return Record(setting=setting, **values)


def _identity(record: Record) -> tuple[object, ...]:
    return (record.workload, *astuple(record.setting), record.baseline, record.candidate, record.stage)
