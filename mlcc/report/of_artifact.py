"""The report of an artifact: what its manifest and its code tell, in the form of a compilation's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlcc
from mlcc.report.assembly import ptx_listings
from mlcc.report.kernels import UNKNOWN
from mlcc.report.measured import UNMEASURED
from mlcc.report.sizes import FORMAT, common_sizes
from mlcc.report.texts import Texts


def artifact_report(name: str, manifest: Mapping[str, Any], size: int, ptx: str | None = None) -> dict[str, Any]:
    """Return the data of a report of an artifact: its kernels with their sizes, memory, and the manifest.

    `manifest` is the complete one, with what the code tells (`mlcc inspect --json`), `size` the bytes of the artifact,
    and `ptx` the text of a GPU's code.
    """
    texts = Texts()
    code = manifest.get("code", {})
    symbols = {kernel: facts["symbol"] for kernel, facts in manifest.get("kernels", {}).items()}
    listings = {} if ptx is None else ptx_listings(ptx, symbols)
    sizes = code.get("kernels") or {}
    kernels = [
        {
            "name": kernel, **UNKNOWN, **UNMEASURED, "code_bytes": sizes.get(kernel), "line_table": [],
            "assembly": texts.add(listings[kernel].text) if kernel in listings else None,
        }
        for kernel in (symbols or sizes)
    ]  # fmt: skip
    return {
        "format": FORMAT,
        "mlcc": mlcc.__version__,
        "title": name,
        "target": manifest["target"]["text"],
        "level": manifest["source"]["opt_level"],
        "pipeline": manifest["source"]["pipeline"],
        "source": None,
        "stages": [],
        "graphs": [],
        "kernels": kernels,
        "decisions": [],
        "memory": [],
        "sizes": {
            "artifact": size, "code": code.get("bytes"), "kernels": sum(sizes.values()) if sizes else None,
            "read_only_data": code.get("read_only_data_bytes"), "data": code.get("data_bytes"),
            "zeros": code.get("bss_bytes"), **common_sizes(manifest),
        },
        "manifest": dict(manifest),
        "profile": None,
        "texts": texts.table(),
    }  # fmt: skip
