"""Networks that PyTorch exports to ONNX: imported with fixed and with symbolic extents, and compared with PyTorch.

The small ones here always run; `--all-cases` adds networks of torchvision, timm and transformers.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_onnx
from tests.frontend.aten_check import compare

TINY = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 64,
}  # fmt: skip
IMAGES = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "efficientnet_b0", "squeezenet1_1")
VISION = ("vit_tiny_patch16_224", "resnest14d", "dla34")
TEXTS = ("Bert", "Electra", "Albert", "Llama", "Qwen2")


def _check(torch: Any, network: Any, inputs: tuple[Any, ...], axes: dict[int, Any] | None, *others: Any) -> None:
    """Export, import, build, and compare on `inputs` and, if some extents are symbolic, on `others`."""
    network = network.eval()
    dynamic = None if axes is None else tuple(axes for _ in inputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(network, inputs, dynamo=True, verbose=False, dynamic_shapes=dynamic)
        file = io.BytesIO()
        exported.save(file)
    run = mlcc.load(mlcc.build(from_onnx(file.getvalue()), target="llvm{cpu=native}", opt_level=1))["main"]
    for given in (inputs, *(others if axes else ())):
        with torch.no_grad():
            expected = network(*given)
        found = run(*(x.numpy() for x in given))
        for mine, theirs in zip(_flat(found), _flat(expected), strict=True):
            compare(np.asarray(mine), theirs.numpy())


def _flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _randomised(torch: Any, network: Any) -> Any:
    """Scales and statistics that make outputs depend on inputs."""
    torch.manual_seed(3)
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if tensor.dim() == 1 and tensor.is_floating_point():
            low, high = (0.5, 1.5) if name.endswith(("weight", "var")) else (-0.3, 0.3)
            tensor.data.uniform_(low, high)
    return network


@pytest.fixture(params=["fixed", "symbolic"])
def symbolic(request: pytest.FixtureRequest) -> bool:
    """Whether extents are symbolic."""
    return bool(request.param == "symbolic")


def test_convolutional_network_agrees(torch: Any, onnxscript: Any, symbolic: bool) -> None:
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.ConvTranspose2d(8, 8, 2, 2),
        nn.GroupNorm(2, 8), nn.SiLU(), nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )  # fmt: skip
    axes = {0: "batch"} if symbolic else None
    r = torch.randn
    _check(torch, _randomised(torch, network), (r(2, 3, 17, 16),), axes, (r(5, 3, 17, 16),), (r(1, 3, 17, 16),))


def test_encoder_agrees(torch: Any, onnxscript: Any, symbolic: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 24, 0.0, batch_first=True, norm_first=True)
    axes = {0: "batch", 1: "length"} if symbolic else None
    r = torch.randn
    _check(torch, _randomised(torch, layer), (r(2, 7, 16),), axes, (r(3, 9, 16),), (r(1, 2, 16),))


def test_many_networks_agree(torch: Any, onnxscript: Any, request: pytest.FixtureRequest, symbolic: bool) -> None:
    """All networks, those that fail named at once."""
    if not request.config.getoption("--all-cases"):
        pytest.skip("a campaign of minutes: --all-cases")
    failed = []
    for name, (network, sample, axes) in _networks(torch, request).items():
        try:
            made = _randomised(torch, network())
            _check(torch, made, sample(2), axes if symbolic else None, sample(3))
        except (mlcc.MlccError, AssertionError) as problem:
            failed.append(f"{name}: {problem}")
    assert not failed, "\n".join(failed)


def _networks(torch: Any, request: pytest.FixtureRequest) -> dict[str, tuple[Callable[[], Any], Any, dict[int, Any]]]:
    torchvision, timm, transformers = map(request.getfixturevalue, ("torchvision", "timm", "transformers"))

    def image(size: int) -> Callable[[int], tuple[Any, ...]]:
        return lambda n: (torch.randn(n, 3, size, size),)

    made: dict[str, tuple[Callable[[], Any], Any, dict[int, Any]]] = {}
    for name in IMAGES:
        made[name] = (lambda name=name: getattr(torchvision.models, name)(weights=None)), image(64), {0: "batch"}
    for name in VISION:
        made[name] = (lambda name=name: timm.create_model(name, pretrained=False)), image(224), {0: "batch"}
    for name in TEXTS:
        made[name] = (lambda name=name: _text(torch, transformers, name)), _ids(torch), {0: "batch", 1: "length"}
    return made


def _ids(torch: Any) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (torch.randint(0, 90, (n, 5 + n)),)


def _text(torch: Any, transformers: Any, name: str) -> Any:
    config = getattr(transformers, f"{name}Config")(**TINY)
    config.use_cache = False
    inner = getattr(transformers, f"{name}Model")(config)

    class Text(torch.nn.Module):  # type: ignore[misc,name-defined]
        """The first result alone."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, ids: Any) -> Any:
            """The last hidden state."""
            return self.inner(input_ids=ids)[0]

    return Text()
