"""Virtual devices (`I.vdevice`) and the other entries of `I.module_global_infos`."""

from __future__ import annotations

from mlcc.ir.node import Attrs, Node, node


@node
class GlobalInfo(Node):
    """An entry of a module's global infos."""


@node
class DummyGlobalInfo(GlobalInfo):
    """An entry without content, used by TVM's tests of the mechanism."""


@node
class VDevice(GlobalInfo):
    """A virtual device: a target (a string, or its JSON form), the number of the device, a memory scope.

    Struct info names it as `KIND:N:SCOPE`, the N-th device of that kind of target; see `device_name`.
    """

    target: str | Attrs
    vdevice_id: int = 0
    memory_scope: str = "global"

    @property
    def kind(self) -> str:
        """The kind of the target: `cuda`, `llvm`, ..."""
        if isinstance(self.target, Attrs):
            return str(self.target.get("kind", ""))
        return self.target.split()[0] if self.target.split() else ""


def device_name(infos: tuple[GlobalInfo, ...], at: int) -> str:
    """Return the name by which struct info refers to the device at an index of a module's list."""
    device = infos[at]
    assert isinstance(device, VDevice)
    before = sum(isinstance(d, VDevice) and d.kind == device.kind for d in infos[:at])
    return f"{device.kind}:{before}:{device.memory_scope}"


def find_device(infos: tuple[GlobalInfo, ...], name: str) -> str | None:
    """Return the full name of the device for `KIND`, `KIND:N`, `KIND:N:SCOPE` or `vdevice:PLACE`, or None.

    As in TVM, the scope is the device's, whatever the name says.
    """
    kind, _, rest = name.partition(":")
    number = rest.partition(":")[0] or "0"
    if not (number.isascii() and number.isdigit()):
        return None
    places = [i for i, d in enumerate(infos) if isinstance(d, VDevice) and kind in (d.kind, "vdevice")]
    return device_name(infos, places[int(number)]) if int(number) < len(places) else None
