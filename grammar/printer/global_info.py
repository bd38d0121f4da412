"""The global infos of a module as text."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.grammar.printer.literals import quote
from mlcc.grammar.printer.writer import Writer
from mlcc.ir.global_info import GlobalInfo, VDevice


def global_infos(out: Writer, infos: Mapping[str, tuple[GlobalInfo, ...]]) -> str:
    """The dict that `I.module_global_infos` takes; sorted by key, as attributes are."""
    lists = (f"{quote(key)}: [{', '.join(_info(out, one) for one in infos[key])}]" for key in sorted(infos))
    return f"{{{', '.join(lists)}}}"


def _info(out: Writer, info: GlobalInfo) -> str:
    if isinstance(info, VDevice):
        return f"I.vdevice({out.value(info.target)}, {info.vdevice_id}, {quote(info.memory_scope)})"
    return "I.dummy_global_info()"
