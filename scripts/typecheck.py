"""mypy over the package, or over files that use it (`scripts/typecheck.py FILE ...`).

mypy does not follow package_dir, so it is shown a farm of links laid out as installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FARM = ROOT / "build" / "typing"


def lay_out(farm: Path) -> None:
    """Make a folder with the package as it is when it is installed."""
    shutil.rmtree(farm, ignore_errors=True)
    package = farm / "mlcc"
    package.mkdir(parents=True)
    for entry in (ROOT / "mlcc").iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for part in ("grammar", "passes", "targets", "runtime"):
        (package / part).symlink_to(ROOT / part)


def main(files: list[str]) -> int:
    lay_out(FARM)
    what = [os.path.abspath(f) for f in files] or ["-p", "mlcc"]
    options = ["--config-file", str(ROOT / "setup.cfg"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *options, *what]
    return subprocess.run(command, cwd=FARM, check=False, env={**os.environ, "MYPYPATH": str(FARM)}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
