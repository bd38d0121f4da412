"""The number of CPU cores that this process may use."""

from __future__ import annotations

import os
import re


def num_cores() -> int:
    """Return the number of cores that this process may use, by its affinity mask and the rounded-up cgroup quota.

    Asked anew each time: a mask may change while the process runs.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:
        allowed = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, allowed if quota is None else min(allowed, -int(-quota // 1)))


def cgroup_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """The least CPU quota, in cores, of this process's control groups (versions 1 and 2); None: no limit."""
    quotas = []
    for line in _lines(own):
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if not controllers:
            top = root
        elif "cpu" in controllers.split(","):
            top = os.path.join(root, "cpu")
        else:
            continue
        folder = os.path.normpath(os.path.join(top, path.strip("/")))
        while folder.startswith(top):
            quotas += [q for q in (_quota(folder),) if q is not None]
            folder = os.path.dirname(folder)
    return min(quotas, default=None)


def _quota(folder: str) -> float | None:
    """The quota written in one control group's folder."""
    words = " ".join(_lines(os.path.join(folder, "cpu.max"))).split()
    if len(words) != 2:
        period = _lines(os.path.join(folder, "cpu.cfs_period_us"))
        words = [*_lines(os.path.join(folder, "cpu.cfs_quota_us")), *period]
    if len(words) != 2 or not all(re.fullmatch(r"\d+", w) for w in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
