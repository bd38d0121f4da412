"""Add the files of this version to the archive: python -m tests.archive.add

They go into a folder with the version of texts as its name, and never change from then on.
"""

from __future__ import annotations

import sys

from mlcc.grammar.syntax.version import VERSION
from tests.archive.files import HERE, make


def main() -> int:
    folder = HERE / str(VERSION)
    if folder.exists():
        print(f"{folder} is there: what is in the archive stays as it is", file=sys.stderr)
        return 1
    folder.mkdir()
    make(folder)
    print(f"{folder}: {sum(p.stat().st_size for p in folder.iterdir()) // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
