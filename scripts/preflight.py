"""Check the prerequisites of an installation: a Python that can create virtual environments, and a C compiler.

Prints what is missing and the package to install, and exits with status 1. Runs on any Python 3.
"""

import importlib.util
import os
import shutil
import sys

problems = []
if sys.version_info < (3, 11):
    problems.append(
        "mlcc needs Python 3.11 or later; this is %d.%d. Debian 12 and Ubuntu 24.04 have it as python3, "
        "or call make with PYTHON=/path/to/python3.11" % sys.version_info[:2]
    )
VERSION = "python%d.%d" % sys.version_info[:2]
if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
    problems.append(
        "this Python cannot create virtual environments (no venv with pip). Debian, Ubuntu: apt install python3-venv "
        "(or %s-venv). Fedora: dnf install python3-pip" % VERSION
    )
if shutil.which(os.environ.get("CC", "cc")) is None:
    problems.append(
        "there is no C compiler `cc`, which the C sample and its tests need. Debian, Ubuntu: apt install gcc "
        "libc6-dev. Fedora: dnf install gcc"
    )
for problem in problems:
    print("mlcc: " + problem, file=sys.stderr)
sys.exit(1 if problems else 0)
