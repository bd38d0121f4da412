"""Models of PyTorch that importers are tried with: builders, inputs of several sizes, what may vary.

Weights are random, and lively: outputs depend on inputs, as the statistics that normalisations keep are of data, and
factors that networks begin with as 0 or 1 are neither. Each builder needs only its own package.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WELL_CONDITIONED = 1e-5  # of the largest element: what float32 and float64 may differ by in PyTorch itself


@dataclass(frozen=True)
class Case:
    """A model, and how it is called."""

    build: Callable[[], Any]
    inputs: Callable[[int], tuple[Any, ...]]  # of a size: 0 is the one that the model is exported with
    dynamic: Any = None  # for `torch.export.export`; None where nothing varies
    package: str = "torch"
    heavy: bool = False  # takes long: only on request


def lively(model: Any, *inputs: Any, seed: int = 0) -> Any:
    """The model in eval mode with weights that let every input show in the outputs.

    Deep networks with such weights can be chaotic: rounding then grows from layer to layer. They get weights with more
    of a bias, or smaller ones, until float32 and float64 agree.
    """
    for calm in (0.0, 1.0, 3.0):
        _draw(model, inputs, calm, seed)
        if not inputs or rounding(model, inputs) <= WELL_CONDITIONED / 2:
            break
    return model


def _draw(model: Any, inputs: tuple[Any, ...], calm: float, seed: int) -> None:
    """Random weights; with `calm`, what normalisations give is mostly of one sign."""
    import torch

    random = torch.Generator().manual_seed(seed)
    norms = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)}
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not value.is_floating_point():
                continue
            fresh = torch.randn(value.shape, generator=random)
            if name.endswith(("running_mean", "bias")):
                value.copy_(fresh * 0.1 + (calm if name.rpartition(".")[0] in norms else 0))
            elif name.endswith("running_var"):
                value.copy_(fresh.abs() * 0.5 + 0.5)
            elif value.dim() <= 1:
                value.copy_(1 + 0.2 * fresh) if value.dim() else value.copy_(value + 0.1)
            elif any(value is p for p in model.parameters()):
                gain = 1.3 if norms else 1.3 / (1 + calm)
                value.copy_(fresh * (gain / math.sqrt(max(value[0].numel(), 1))))
        model.eval()
        if norms and inputs:
            _take_statistics(model, list(norms.values()), inputs)


def _take_statistics(model: Any, norms: list[Any], inputs: tuple[Any, ...]) -> None:
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        norm.train()
    for _ in range(2):
        model(*inputs)
    for norm in norms:  # what hardly varies in the data is not blown up
        norm.running_var.clamp_(min=float(norm.running_var.mean()) / 2)
    model.eval()


def precise(model: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """The tensors of the model's results in float64, what it makes itself included where it does not say float32.

    They are those in float32 where PyTorch has an operator for that only.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return leaves(copy.deepcopy(model).double()(*(t.double() if t.is_floating_point() else t for t in inputs)))
    except RuntimeError as problem:
        if "Float32" not in str(problem):
            raise
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        return leaves(copy.deepcopy(model)(*inputs))


def rounding(model: Any, inputs: tuple[Any, ...]) -> float:
    """By how much of the largest element the results in float32 and float64 differ."""
    import torch

    with torch.no_grad():
        plain = leaves(copy.deepcopy(model)(*inputs))
    pairs = zip(plain, precise(model, inputs), strict=True)
    return max((departure(one, other) for one, other in pairs if one.is_floating_point()), default=0.0)


def departure(found: Any, expected: Any) -> float:
    """The largest difference, of the largest element that is expected; infinite where one is NaN."""
    import numpy as np

    one, other = (np.asarray(value).astype("float64") for value in (found, expected))
    scale = max(float(np.max(np.abs(other), initial=0, where=np.isfinite(other))), 1e-6)
    differences = np.subtract(one, other, out=np.zeros_like(other), where=one != other)  # not of infinities
    worst = float(np.max(np.abs(differences), initial=0)) / scale
    return math.inf if math.isnan(worst) else worst


def leaves(value: Any) -> list[Any]:
    """The tensors and numbers in nested results."""
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


# ---------------------------------------------------------------- inputs


def image(side: int, channels: int = 3, batch: tuple[int, ...] = (2, 3, 1)) -> Callable[[int], tuple[Any, ...]]:
    """Images; sizes are batches."""

    def make(size: int) -> tuple[Any, ...]:
        import torch

        return (
            torch.randn(batch[size % len(batch)], channels, side, side, generator=torch.Generator().manual_seed(size)),
        )

    return make


def tokens(
    vocabulary: int = 99, shapes: tuple[tuple[int, int], ...] = ((2, 7), (3, 12), (1, 5))
) -> Callable[[int], Any]:
    """Batches of sequences of tokens."""

    def make(size: int) -> tuple[Any, ...]:
        import torch

        return (
            torch.randint(1, vocabulary, shapes[size % len(shapes)], generator=torch.Generator().manual_seed(size)),
        )

    return make


def tensors(*shapes: tuple[int | str, ...], sizes: tuple[dict[str, int], ...] = ({},)) -> Callable[[int], Any]:
    """Normal numbers; extents that are names have the values of a size."""

    def make(size: int) -> tuple[Any, ...]:
        import torch

        values, random = sizes[size % len(sizes)], torch.Generator().manual_seed(size)
        return tuple(torch.randn([values.get(str(e), e) for e in shape], generator=random) for shape in shapes)

    return make


def _batch() -> Any:
    import torch

    return torch.export.Dim("batch", min=1, max=64)


def _dim(name: str, most: int = 64) -> Any:
    import torch

    return torch.export.Dim(name, min=2, max=most)


def _first_is_batch() -> tuple[Any, ...]:
    return ({0: _batch()},)


def _batch_and_length() -> tuple[Any, ...]:
    return ({0: _batch(), 1: _dim("length", 32)},)


# ---------------------------------------------------------------- torchvision and timm


def _vision(name: str, side: int = 64, **options: Any) -> Case:
    def build() -> Any:
        import torchvision

        made = getattr(torchvision.models, name)(weights=None, **options)
        return lively(made, *image(side)(3))

    return Case(build, image(side), _first_is_batch, "torchvision")


def _timm(name: str, side: int = 64, heavy: bool = False, **options: Any) -> Case:
    def build() -> Any:
        import timm

        return lively(timm.create_model(name, pretrained=False, num_classes=10, **options), *image(side)(3))

    return Case(build, image(side), _first_is_batch, "timm", heavy)


class _First:
    """Makes modules that return the tensors of a result that is a dict."""

    @staticmethod
    def of(model: Any) -> Any:
        import torch

        class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x: Any) -> Any:
                made = self.model(x)
                return tuple(made.values()) if hasattr(made, "values") else made

        return Plain()


def _segmentation(name: str) -> Case:
    def build() -> Any:
        import torchvision

        made = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)
        return lively(_First.of(made), *image(64)(3))

    return Case(build, image(64), _first_is_batch, "torchvision")


def _video(name: str) -> Case:
    inputs = tensors(("b", 3, 4, 32, 32), sizes=({"b": 2}, {"b": 1}))

    def build() -> Any:
        import torchvision

        return lively(getattr(torchvision.models.video, name)(weights=None, num_classes=7), *inputs(0))

    return Case(build, inputs, _first_is_batch, "torchvision", heavy=True)


# ---------------------------------------------------------------- transformers

_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 99,
}


def _text(
    config: str, model: str, heavy: bool = False, inputs: Callable[[int], Any] | None = None, **options: Any
) -> Case:
    """A model of transformers over tokens, which gives the first tensor of its output."""
    given = inputs or tokens()

    def build() -> Any:
        import torch
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**options))

        class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.model = made

            def forward(self, *inputs: Any) -> Any:
                return self.model(*inputs, return_dict=False, **keywords)[0]

        keywords = {"use_cache": False} if hasattr(made.config, "use_cache") else {}
        return lively(Plain(), *given(0))

    return Case(build, given, _batch_and_length, "transformers", heavy)


def _of_batch(case: Case) -> Case:
    """The model where only the batch may vary."""
    import dataclasses

    return dataclasses.replace(case, dynamic=_first_is_batch, inputs=tokens(shapes=((2, 7), (3, 7), (1, 7))))


def _pixels(config: str, model: str, side: int = 32, **options: Any) -> Case:
    case = _text(config, model, inputs=image(side), **options)
    return Case(case.build, image(side), _first_is_batch, "transformers")


def _series(config: str, model: str, *shape: int, **options: Any) -> Case:
    """A model of transformers over batches of numbers."""
    import dataclasses

    inputs = tensors(("b", *shape), sizes=({"b": 2}, {"b": 3}, {"b": 1}))
    case = _text(config, model, inputs=inputs, **options)
    return dataclasses.replace(case, dynamic=_first_is_batch)


_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64}
_LLAMA = {**_SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}


# ---------------------------------------------------------------- own


def _own(make: Callable[[Any], Any], inputs: Callable[[int], Any], dynamic: Any = None, heavy: bool = False) -> Case:
    def build() -> Any:
        import torch

        return lively(make(torch), *inputs(0))

    return Case(build, inputs, dynamic, heavy=heavy)


def _module(torch: Any, parts: dict[str, Any], forward: Callable[..., Any]) -> Any:
    """A module with these parts, whose `forward` gets it and the inputs."""

    class Own(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, torch.Tensor):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

    Own.forward = forward
    return Own()


def _recurrent(kind: str, **options: Any) -> Case:
    def make(torch: Any) -> Any:
        cell = getattr(torch.nn, kind)(6, 8, num_layers=2, batch_first=True, **options)
        width = 16 if options.get("bidirectional") else 8
        return _module(
            torch, {"cell": cell, "head": torch.nn.Linear(width, 3)}, lambda m, x: m.head(m.cell(x)[0][:, -1])
        )

    return _own(make, tensors(("b", 5, 6), sizes=({"b": 2}, {"b": 4}, {"b": 1})), _first_is_batch)


def _gcn(torch: Any) -> Any:
    def forward(m: Any, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(target.shape[0])) + 1
        for layer in (m.first, m.last):
            h = layer(x)
            gathered = torch.zeros_like(h).index_add(0, target, h[source])
            x = torch.relu((gathered + h) / degree[:, None])
        return x

    return _module(torch, {"first": torch.nn.Linear(5, 8), "last": torch.nn.Linear(8, 4)}, forward)


def _graph(size: int) -> tuple[Any, ...]:
    import torch

    nodes, edges = ((6, 9), (11, 20), (3, 2))[size % 3]
    random = torch.Generator().manual_seed(size)
    return torch.randn(nodes, 5, generator=random), torch.randint(0, nodes, (2, edges), generator=random)


def _unet(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any, time: Any) -> Any:
        steps = torch.arange(4) * 0.5
        embedded = m.time(torch.cat([torch.sin(time[:, None] * steps), torch.cos(time[:, None] * steps)], 1))
        a = nn.functional.silu(m.norm1(m.conv1(x)))
        b = nn.functional.silu(m.norm2(m.down(a)) + embedded[:, :, None, None])
        up = nn.functional.interpolate(b, scale_factor=2.0, mode="nearest")
        return m.out(torch.cat([a, m.conv2(up)], 1))

    parts = {
        "conv1": nn.Conv2d(3, 8, 3, padding=1), "norm1": nn.GroupNorm(2, 8), "down": nn.Conv2d(8, 16, 3, 2, 1),
        "norm2": nn.GroupNorm(4, 16), "conv2": nn.Conv2d(16, 8, 3, padding=1), "time": nn.Linear(8, 16),
        "out": nn.ConvTranspose2d(16, 3, 3, padding=1),
    }  # fmt: skip
    return _module(torch, parts, forward)


def _unet_inputs(size: int) -> tuple[Any, ...]:
    import torch

    batch, side = ((2, 8), (1, 12), (3, 16))[size % 3]
    random = torch.Generator().manual_seed(size)
    return torch.randn(batch, 3, side, side, generator=random), torch.rand(batch, generator=random) * 10


def _detector(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any) -> Any:
        h = m.stem(x)
        scores = m.score(h).flatten(1).sigmoid()
        boxes = m.box(h).flatten(2).transpose(1, 2)
        best, where = scores.topk(5, dim=1)
        return best, boxes.gather(1, where[:, :, None].expand(-1, -1, 4)), where

    stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.MaxPool2d(2))
    return _module(torch, {"stem": stem, "score": nn.Conv2d(8, 1, 1), "box": nn.Conv2d(8, 4, 1)}, forward)


def _cached_decoder(torch: Any) -> Any:
    nn = torch.nn

    def forward(m: Any, x: Any, position: Any) -> Any:
        q, k, v = (part.view(1, 2, 8) for part in m.qkv(x).chunk(3, -1))
        m.keys.index_copy_(1, position, k.transpose(0, 1))
        m.values[:, position] = v.transpose(0, 1)
        seen = torch.arange(16)[None, :] <= position
        scores = (q.transpose(0, 1) @ m.keys.transpose(1, 2)) / 8**0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return m.out((weights @ m.values).transpose(0, 1).reshape(1, 16))

    parts = {
        "qkv": nn.Linear(16, 48), "out": nn.Linear(16, 16), "keys": torch.zeros(2, 16, 8),
        "values": torch.zeros(2, 16, 8),
    }  # fmt: skip
    return _module(torch, parts, forward)


def _decoder_inputs(size: int) -> tuple[Any, ...]:
    import torch

    return torch.randn(1, 16, generator=torch.Generator().manual_seed(size)), torch.tensor([size % 3])


def _nonzero(torch: Any) -> Any:
    return _module(torch, {"layer": torch.nn.Linear(4, 4)}, lambda m, x: m.layer(x[x[:, 0] > 0]))


def _encoder(torch: Any) -> Any:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True)
    stack = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return _module(torch, {"stack": stack}, lambda m, x: m.stack(x))


def _dcgan(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.ConvTranspose2d(12, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1),
        nn.Tanh(),
    )  # fmt: skip


def _pointnet(torch: Any) -> Any:
    nn = torch.nn
    parts = {"points": nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU(), nn.Conv1d(16, 24, 1)), "head": nn.Linear(24, 5)}
    return _module(torch, parts, lambda m, x: m.head(m.points(x.transpose(1, 2)).amax(2)).log_softmax(-1))


def _swaps(torch: Any) -> Any:
    def forward(m: Any, x: Any) -> Any:
        windows = x.roll((-1, -1), (1, 2)).unfold(1, 2, 2).unfold(2, 2, 2)
        return m.layer(windows.flatten(3)).mean((1, 2)), torch.einsum("bijc,bijd->bcd", x, x)

    return _module(torch, {"layer": torch.nn.Linear(12, 4)}, forward)


def _quantized(torch: Any) -> Any:
    def forward(m: Any, x: Any) -> Any:
        scale = x.abs().max() / 127
        whole = (x / scale).round().clamp(-128, 127).to(torch.int8)
        product = whole.to(torch.int32) @ m.weight.to(torch.int32)
        return product.to(torch.float32) * scale * 0.01

    return _module(torch, {"weight": torch.randint(-100, 100, (6, 5), dtype=torch.int8)}, forward)


CASES: dict[str, Case] = {
    **{
        f"torchvision_{name}": _vision(name, side)
        for name, side in {
            "alexnet": 64, "vgg11_bn": 32, "resnet18": 64, "resnet50": 64, "resnext50_32x4d": 64, "densenet121": 64,
            "mobilenet_v2": 64, "mobilenet_v3_small": 64, "mobilenet_v3_large": 64, "shufflenet_v2_x1_0": 64,
            "squeezenet1_1": 64, "mnasnet1_0": 64, "efficientnet_b0": 64, "regnet_y_400mf": 64, "convnext_tiny": 64,
            "googlenet": 64, "wide_resnet50_2": 64, "efficientnet_v2_s": 64,
        }.items()
    },
    "torchvision_vit": _vision("vit_b_32", 64, image_size=64),
    "torchvision_swin_t": _vision("swin_t"),
    "torchvision_swin_v2_t": _vision("swin_v2_t"),
    "torchvision_maxvit": _vision("maxvit_t", 224),
    "torchvision_inception_v3": _vision("inception_v3", 96, aux_logits=True, init_weights=False),
    "torchvision_deeplabv3": _segmentation("deeplabv3_mobilenet_v3_large"),
    "torchvision_lraspp": _segmentation("lraspp_mobilenet_v3_large"),
    "torchvision_fcn": _segmentation("fcn_resnet50"),
    "torchvision_r3d_18": _video("r3d_18"),
    "torchvision_mc3_18": _video("mc3_18"),
    **{
        f"timm_{name}": _timm(name)
        for name in (
            "resnet18d", "efficientnet_lite0", "mobilenetv3_small_050", "ghostnet_100", "convnext_atto",
            "hardcorenas_a",
            "repvgg_a0", "regnetx_002", "mobileone_s0", "res2net50_14w_8s", "skresnet18", "dla34",
            "fbnetc_100", "tinynet_e",
            "lcnet_050", "semnasnet_075", "edgenext_xx_small", "mobilevit_xxs", "poolformer_s12",
            "resnest14d", "cspresnet50", "ese_vovnet19b_dw",
        )
    },
    **{
        f"timm_{name}": _timm(name, 64, img_size=64)
        for name in ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "mixer_s32_224", "resmlp_12_224", "gmlp_ti16_224")
    },
    "timm_swin_tiny": _timm("swin_tiny_patch4_window7_224", 224, heavy=True),
    "timm_cait": _timm("cait_xxs24_224", 64, img_size=64, heavy=True),
    "bert": _text("BertConfig", "BertModel", **_SMALL, max_position_embeddings=64),
    "bert_classifier": _text("BertConfig", "BertForSequenceClassification", **_SMALL, max_position_embeddings=64),
    "roberta": _text("RobertaConfig", "RobertaModel", **_SMALL, max_position_embeddings=64),
    "distilbert": _text("DistilBertConfig", "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=48,
                        vocab_size=99),
    "albert": _text("AlbertConfig", "AlbertModel", **_SMALL, embedding_size=16, max_position_embeddings=64),
    "electra": _text("ElectraConfig", "ElectraModel", **_SMALL, embedding_size=16, max_position_embeddings=64),
    "deberta_v2": _text("DebertaV2Config", "DebertaV2Model", **_SMALL, max_position_embeddings=64,
                        relative_attention=True,
                        pos_att_type=["p2c", "c2p"]),
    "mpnet": _text("MPNetConfig", "MPNetModel", **_SMALL, max_position_embeddings=64),
    "gpt2": _text("GPT2Config", "GPT2LMHeadModel", **_GPT),
    "gpt_neo": _text("GPTNeoConfig", "GPTNeoForCausalLM", hidden_size=32, num_layers=2, num_heads=4, vocab_size=99,
                     attention_types=[[["global", "local"], 1]], max_position_embeddings=64, window_size=4),
    "gpt_neox": _text("GPTNeoXConfig", "GPTNeoXForCausalLM", **_SMALL, max_position_embeddings=64),
    "gptj": _text("GPTJConfig", "GPTJForCausalLM", **_GPT, rotary_dim=4),
    "opt": _text("OPTConfig", "OPTForCausalLM", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48,
                 vocab_size=99, max_position_embeddings=64, word_embed_proj_dim=32),
    "bloom": _text("BloomConfig", "BloomForCausalLM", hidden_size=32, n_layer=2, n_head=4, vocab_size=99),
    "llama": _text("LlamaConfig", "LlamaForCausalLM", **_LLAMA),
    "mistral": _text("MistralConfig", "MistralForCausalLM", **_LLAMA, sliding_window=8),
    "qwen2": _text("Qwen2Config", "Qwen2ForCausalLM", **_LLAMA),
    "qwen3": _text("Qwen3Config", "Qwen3ForCausalLM", **_LLAMA, head_dim=8),
    "gemma": _text("GemmaConfig", "GemmaForCausalLM", **_LLAMA, head_dim=8),
    "gemma2": _text("Gemma2Config", "Gemma2ForCausalLM", **_LLAMA, head_dim=8),
    "phi": _text("PhiConfig", "PhiForCausalLM", **_SMALL, max_position_embeddings=64),
    "phi3": _text("Phi3Config", "Phi3ForCausalLM", **_LLAMA, pad_token_id=0),
    "olmo2": _text("Olmo2Config", "Olmo2ForCausalLM", **_LLAMA),
    "stablelm": _text("StableLmConfig", "StableLmForCausalLM", **_LLAMA),
    "falcon": _text("FalconConfig", "FalconForCausalLM", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                    vocab_size=99, new_decoder_architecture=False),
    "t5_encoder": _text("T5Config", "T5EncoderModel", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                        vocab_size=99),
    "mamba": _of_batch(_text("MambaConfig", "MambaForCausalLM", hidden_size=16, state_size=4, num_hidden_layers=2,
                             vocab_size=99)),
    "vit": _pixels("ViTConfig", "ViTModel", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=48, image_size=32, patch_size=8),
    "dinov2": _pixels("Dinov2Config", "Dinov2Model", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                      image_size=32, patch_size=8),
    "convnextv2": _pixels("ConvNextV2Config", "ConvNextV2Model", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "clip_vision": _pixels("CLIPVisionConfig", "CLIPVisionModel", hidden_size=32, num_hidden_layers=2,
                           num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8),
    "segformer": _pixels("SegformerConfig", "SegformerForSemanticSegmentation", 64, hidden_sizes=[8, 16, 24, 32],
                         depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16),
    "wav2vec2": _series(
        "Wav2Vec2Config", "Wav2Vec2Model", 200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, conv_dim=[8, 8], conv_stride=[3, 2], conv_kernel=[5, 3], num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
    ),
    "own_lstm": _recurrent("LSTM"),
    "own_gru": _recurrent("GRU"),
    "own_gru_both_ways": _recurrent("GRU", bidirectional=True),
    "own_rnn": _recurrent("RNN"),
    "own_gcn": _own(_gcn, _graph, lambda: ({0: _dim("nodes")}, {1: _dim("edges", 99)})),
    "own_unet": _own(_unet, _unet_inputs, lambda: ({0: _batch(), 2: 2 * _dim("h"), 3: 2 * _dim("w")}, {0: _batch()})),
    "own_detector": _own(_detector, image(32), _first_is_batch),
    "own_cached_decoder": _own(_cached_decoder, _decoder_inputs),
    "own_nonzero": _own(_nonzero, tensors(("n", 4), sizes=({"n": 6}, {"n": 9}, {"n": 2})), lambda: ({0: _dim("n")},)),
    "own_encoder": _own(_encoder, tensors(("b", "s", 16), sizes=({"b": 2, "s": 5}, {"b": 3, "s": 9})),
                        _batch_and_length),
    "own_dcgan": _own(_dcgan, tensors(("b", 12, 1, 1), sizes=({"b": 2}, {"b": 5})), _first_is_batch),
    "own_pointnet": _own(_pointnet, tensors(("b", "n", 3), sizes=({"b": 2, "n": 9}, {"b": 3, "n": 17})),
                         _batch_and_length),
    "own_windows": _own(_swaps, tensors(("b", 4, 4, 3), sizes=({"b": 2}, {"b": 3})), _first_is_batch),
    "own_quantized": _own(_quantized, tensors(("b", 6), sizes=({"b": 4}, {"b": 7})), _first_is_batch),
}  # fmt: skip
