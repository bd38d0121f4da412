"""Register the backend `mlcc` of `torch.compile` if mlcc is not installed, as in a checkout.

PyTorch looks up backends once, among the entry points of distributions. An installed mlcc has one in its metadata;
`offer` provides the same to `importlib.metadata` through a finder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution

GROUP = "torch_dynamo_backends"
NAME = "mlcc"
VALUE = "mlcc.frontend.fx.backend:mlcc_backend"
_DISTRIBUTION = "mlcc-torch-backend"
_REGISTRY = "torch._dynamo.backends.registry"


def register_entry_point() -> None:
    """Make the backend known to PyTorch, without importing PyTorch."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    registry = sys.modules.get(_REGISTRY)
    if registry is not None:  # the lookup may have happened already
        from importlib.metadata import EntryPoint

        registry._BACKENDS.setdefault(NAME, EntryPoint(NAME, VALUE, GROUP))


class _Finder:
    """A finder of no modules and one distribution."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        return None

    @staticmethod
    def find_distributions(context: Any) -> Iterator[Distribution]:
        if context.name in (None, _DISTRIBUTION):
            yield _distribution()


def _distribution() -> Distribution:
    from importlib.metadata import Distribution

    class Backend(Distribution):
        """The metadata of an installed mlcc, as far as PyTorch asks for it."""

        def read_text(self, filename: str) -> str | None:
            return {
                "METADATA": f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: 0\n",
                "entry_points.txt": f"[{GROUP}]\n{NAME} = {VALUE}\n",
            }.get(filename)

        def locate_file(self, path: Any) -> Any:
            raise FileNotFoundError(path)

    return Backend()
