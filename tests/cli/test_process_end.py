"""How the process of a command ends: at once, after what is registered for its end, and with the exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """A process that runs `code`, then the command line."""
    whole = f"import sys\nfrom mlcc.__main__ import start\n{code}\nsys.argv = ['mlcc', *sys.argv[1:]]\nstart()"
    return subprocess.run([sys.executable, "-c", whole, *argv], cwd=ROOT, capture_output=True, text=True)


LEAVES = "class Freed:\n    def __del__(self): print('freed')\nkept = Freed()\n"
REGISTERED = "import atexit; atexit.register(print, 'registered')\n"
THREAD = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
POOL = (
    "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
    "pool.submit(lambda: (__import__('time').sleep(0.2), print('pool')))\n"
)


@pytest.mark.parametrize(("argv", "code"), [(["--version"], 0), (["check", "/no/such.mlc"], 1), (["nothing"], 2)])
def test_exit_codes(argv: list[str], code: int) -> None:
    done = run(LEAVES + REGISTERED, *argv)
    assert done.returncode == code
    assert "registered" in done.stdout and "freed" not in done.stdout  # objects are not freed one by one
    assert bool(done.stderr) == (code != 0)


@pytest.mark.parametrize(("code", "said"), [(THREAD, "thread"), (POOL, "pool")])
def test_running_threads_are_waited_for(code: str, said: str) -> None:
    done = run(LEAVES + REGISTERED + code, "--version")
    assert done.returncode == 0 and {said, "registered", "freed"} <= set(done.stdout.split())


def test_a_profile_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cProfile", "-o", str(tmp_path / "profile"), "-m", "mlcc", "--version"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0
    assert (tmp_path / "profile").stat().st_size > 1000


def test_the_output_is_complete() -> None:
    done = subprocess.run([sys.executable, "-m", "mlcc", "explain", "R.nn.conv2d"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0 and len(done.stdout) > 1000 and done.stdout.endswith(b"\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_output_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "mlcc", "ops"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"E0002" in done.stderr and b"Exception ignored" not in done.stderr
