"""Run mypy on the package, or on files that use it (`scripts/typecheck.py FILE ...`).

mypy does not follow package_dir, so it runs on a tree of symbolic links laid out as the installed package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "typing"


def link_package(tree: Path) -> None:
    """Create a folder of links with the layout of the installed package."""
    shutil.rmtree(tree, ignore_errors=True)
    package = tree / "mlcc"
    package.mkdir(parents=True)
    for entry in (ROOT / "mlcc").iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for part in ("grammar", "passes", "targets", "runtime"):
        (package / part).symlink_to(ROOT / part)


def main(files: list[str]) -> int:
    link_package(LINKS)
    targets = [os.path.abspath(f) for f in files] or ["-p", "mlcc"]
    options = ["--config-file", str(ROOT / "setup.cfg"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *options, *targets]
    return subprocess.run(command, cwd=LINKS, check=False, env={**os.environ, "MYPYPATH": str(LINKS)}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
