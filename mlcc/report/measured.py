"""Measured times of kernels in the data of a report, and estimates for GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# what is known of a kernel only after a run
UNMEASURED: dict[str, Any] = {
    "seconds": None, "measured_calls": None, "threads": None, "estimate": None, "gflops": None, "gbs": None,
    "share": None, "bound": None,
}  # fmt: skip


def add_profile(data: dict[str, Any], profile: Mapping[str, Any]) -> None:
    """Add a profile of kernels (`mlcc bench --profile --json`) to the data of a report.

    Times of a kernel are those of all its calls in a call of the function.
    """
    kernels = {kernel["name"]: kernel for kernel in data["kernels"]}
    data["profile"] = {key: profile[key] for key in ("function", "seconds", "rest_seconds", "rounds", "machine")}
    for row in profile["kernels"]:
        kernel = kernels.get(row["kernel"])
        if kernel is None:
            continue
        seconds, share = row["seconds"], row["roofline_share"]
        kernel |= {
            "seconds": seconds, "measured_calls": row["calls"], "threads": row["threads"], "share": share,
            "bound": row["bound"], "gflops": _rate(row["operations"], seconds), "gbs": _rate(row["bytes"], seconds),
            "estimate": None if share is None else {"seconds": share * seconds, "bound": row["bound"]},
        }  # fmt: skip
        if kernel["flops"] is None and row["operations"] is not None and row["calls"]:
            kernel["flops"] = round(row["operations"] / row["calls"])
            kernel["bytes"] = round(row["bytes"] / row["calls"])


def add_estimates(data: dict[str, Any], report: Mapping[str, Any]) -> None:
    """Add the estimates of launches on a GPU (`mlcc analyze --json`): the sums over all launches of a kernel."""
    launches = {launch["name"]: launch for launch in report["kernels"]}
    for kernel in data["kernels"]:
        found = [launches[name] for name in kernel["launches"] if name in launches]
        rooflines = [(one["launches"], one["roofline"]) for one in found if one["roofline"] is not None]
        if not rooflines:
            continue
        _, longest = max(rooflines, key=lambda pair: float(pair[0] * pair[1]["seconds"]))
        sums = {key: sum(times * one[key] for times, one in rooflines) for key in ("seconds", "flops", "bytes")}
        calls = max(kernel["calls"], 1)
        kernel |= {
            "estimate": {"seconds": sums["seconds"], "bound": longest["bound"]}, "bound": longest["bound"],
            "flops": round(sums["flops"] / calls), "bytes": round(sums["bytes"] / calls),
        }  # fmt: skip


def _rate(amount: float | None, seconds: float) -> float | None:
    """Return billions per second."""
    return amount / seconds / 1e9 if amount is not None and seconds else None
