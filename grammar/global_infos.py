"""`I.module_global_infos({...})` from text, and the names of the virtual devices that it declares."""

from __future__ import annotations

from mlcc.errors import did_you_mean
from mlcc.grammar.context import Scope, Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.attribute_values import attribute
from mlcc.grammar.tir.evaluator import Evaluator
from mlcc.ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice, device_name, find_device
from mlcc.ir.node import Attrs


def read_global_infos(walk: Walk, call: tree.Call) -> dict[str, tuple[GlobalInfo, ...]]:
    """The lists of infos by their keys."""
    if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], tree.Dict):
        walk.fail("E0304", '`I.module_global_infos` takes one dict, such as `{"vdevice": [I.vdevice("cuda")]}`', call)
    infos: dict[str, tuple[GlobalInfo, ...]] = {}
    for key, items in call.args[0].entries:
        if not isinstance(key, tree.Str) or not isinstance(items, tree.Display):
            walk.fail("E0304", "global infos must be lists, with strings as keys", key)
        infos[key.value] = tuple(_info(walk, item) for item in items.items)
    return infos


def _info(walk: Walk, cst: tree.Expr) -> GlobalInfo:
    if isinstance(cst, tree.Call):
        path = walk.dotted(cst.function)
        if path == "I.dummy_global_info" and not cst.args and not cst.keywords:
            return DummyGlobalInfo(span=walk.span(cst))
        if path == "I.vdevice":
            return _vdevice(walk, cst)
    return walk.fail("E0304", "a global info must be `I.vdevice(...)` or `I.dummy_global_info()`", cst)


def _vdevice(walk: Walk, cst: tree.Call) -> VDevice:
    names = ("target", "vdevice_id", "memory_scope")
    arguments = dict(zip(names, cst.args, strict=False))
    for keyword in cst.keywords:
        name = keyword.name
        if name not in names or name in arguments:
            walk.fail(
                "E0304",
                f"`I.vdevice` has no argument `{name}` here",
                keyword,
                did_you_mean(name, names) or "",
            )
        arguments[name] = keyword.value
    if len(cst.args) > len(names) or "target" not in arguments:
        walk.fail("E0304", "`I.vdevice` takes a target, the number of the device, and a memory scope", cst)
    ev = Evaluator(walk, Scope())
    target, number, scope = (
        attribute(ev, ev.value(arguments[n]), arguments[n]) if n in arguments else default
        for n, default in zip(names, ("", 0, "global"), strict=True)
    )
    if not isinstance(target, (str, Attrs)):
        walk.fail("E0302", "a target must be a string or a dict", arguments["target"])
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        walk.fail("E0302", "the number of a device must be an integer", arguments["vdevice_id"])
    if not isinstance(scope, str):
        walk.fail("E0302", 'a memory scope must be a string such as "global"', arguments["memory_scope"])
    device = VDevice(target, number, scope, span=walk.span(cst))
    if not device.kind or not isinstance(device.kind, str):
        walk.fail("E0302", 'a target must name its kind, such as "cuda" or {"kind": "cuda"}', arguments["target"])
    return device


def resolve_device(walk: Walk, name: str, cst: tree.Expr) -> str:
    """Return the full name of a device, from the module's declarations or, if there are none, from the name itself."""
    declared = walk.global_infos.get("vdevice")
    if declared is not None:
        device = find_device(declared, name)
        if device is None:
            known = [device_name(declared, i) for i, d in enumerate(declared) if isinstance(d, VDevice)]
            walk.fail("E0401", f"the module has no device `{name}`", cst, help=f"it has {', '.join(known) or 'none'}")
        return device
    kind, number, scope = [*name.split(":"), "", ""][:3]
    if number and not (number.isascii() and number.isdigit()):
        walk.fail("E0401", f"`{number}` is not a device number", cst)
    return f"{kind}:{number or 0}:{scope or 'global'}"
