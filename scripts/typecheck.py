"""mypy over the package. It does not follow package_dir, so it is shown a farm of links laid out as installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FARM = ROOT / "build" / "typing"


def main() -> int:
    shutil.rmtree(FARM, ignore_errors=True)
    package = FARM / "mlcc"
    package.mkdir(parents=True)
    for entry in (ROOT / "mlcc").iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for part in ("grammar", "passes", "targets", "runtime"):
        (package / part).symlink_to(ROOT / part)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "setup.cfg"), "-p", "mlcc"]
    return subprocess.run(command, cwd=FARM, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
