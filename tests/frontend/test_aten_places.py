"""ATen operators of places and orders: indexing, scatters, sorts, embeddings; losses; quantization."""

from __future__ import annotations

import math
from typing import Any

from tests.frontend.operator_check import Case, check_cases


def test_indexing_agrees(torch: Any) -> None:
    x = torch.randn(4, 5, 6)
    i, j = torch.tensor([0, 3, 1]), torch.tensor([4, -1, 2])
    grid = torch.tensor([[0], [2]])
    mask = torch.rand(4, 5) > 0.5
    v = torch.randn
    cases: dict[str, Case] = {
        "one": (lambda x, i: x[i], [x, i]),
        "second": (lambda x, i: x[:, i], [x, i]),
        "last": (lambda x, i: x[..., i], [x, i]),
        "two": (lambda x, i, j: x[i, j], [x, i, j]),
        "two adjacent": (lambda x, i, j: x[:, i, j], [x, i, j]),
        "two apart": (lambda x, i, j: x[i, :, j], [x, i, j]),
        "grid": (lambda x, i, g: x[g, i], [x, i, grid]),
        "grid behind": (lambda x, i, g: x[:, g, i], [x, i, grid]),
        "three": (lambda x, i, j: x[i, j, i], [x, i, j]),
        "put": (lambda x, i, v: x.index_put((i,), v), [x, i, v(3, 5, 6)]),
        "put broadcast": (lambda x, i, v: x.index_put((i,), v), [x, i, v(6)]),
        "put two": (lambda x, i, j, v: x.index_put((i, j), v), [x, i, j, v(3, 6)]),
        "put add": (lambda x, i, v: x.index_put((torch.zeros_like(i),), v, True), [x, i, v(3, 5, 6)]),
        "put behind": (lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v), [x, i, v(4, 3, 6)]),
        "put apart": (lambda x, i, v: torch.ops.aten.index_put(x, [i, None, i], v), [x, i, v(3, 5)]),
        "put mask": (lambda x, m, v: x.index_put((m,), v), [x, mask, v(1)]),
        "put mask rows": (lambda x, m, v: x.index_put((m,), v), [x, mask, v(int(mask.sum()), 6)]),
        "masked_scatter": (lambda x, m, v: x.masked_scatter(m[..., None], v), [x, mask, v(4, 5, 6)]),
        "index_select": (lambda x, i: x.index_select(-2, i), [x, i]),
        "index_add": (lambda x, i, v: x.index_add(1, torch.zeros_like(i), v, alpha=2), [x, i, v(4, 3, 6)]),
        "index_copy": (lambda x, i, v: x.index_copy(0, i, v), [x, i, v(3, 5, 6)]),
        "index_fill": (lambda x, i: x.index_fill(2, i, 7), [x, i]),
        "gather": (lambda x, i: x.gather(1, i), [x, torch.randint(0, 5, (3, 7, 6))]),
        "take": (lambda x, i: x.take(i), [x, torch.randint(0, 120, (3, 2))]),
        "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(1), 1), [x]),
        "scatter": (lambda x, i, v: x.scatter(0, i, v), [x, torch.randperm(4)[:3, None, None], v(4, 5, 6)]),
        "scatter value": (lambda x, i: x.scatter(1, i, 2.5), [x, torch.randint(0, 5, (4, 2, 6))]),
        "scatter_add": (lambda x, i, v: x.scatter_add(1, i, v), [x, torch.randint(0, 5, (4, 7, 3)), v(4, 8, 6)]),
        **{
            f"scatter_reduce {how} {own}": (
                _scatter_reduce(how, own),
                [x, torch.randint(0, 5, (4, 7, 3)), v(4, 8, 6)],
            )
            for how in ("sum", "mean", "prod", "amax", "amin")
            for own in (True, False)
        },
        "select_scatter": (lambda x, v: x.select_scatter(v, 1, -2), [x, v(4, 6)]),
        "slice_scatter": (lambda x, v: x.slice_scatter(v, 2, 1, -1, 2), [x, v(4, 5, 2)]),
        "slice_scatter end": (lambda x, v: x.slice_scatter(v, 0, -2), [x, v(2, 5, 6)]),
        "diagonal_scatter": (lambda x, v: x.diagonal_scatter(v, 1, 0, 2), [x, v(5, 4)]),
        "embedding": (torch.nn.functional.embedding, [torch.randint(0, 9, (2, 3)), v(9, 4)]),
        "one_hot": (lambda i: torch.nn.functional.one_hot(i, 5), [i]),
        "number": (lambda x: x.index_fill(0, torch.tensor([0]), 3), [torch.tensor(2.0)]),
    }
    check_cases(cases)


def _scatter_reduce(how: str, own: bool) -> Any:
    return lambda x, i, v: x.scatter_reduce(1, i, v, how, include_self=own)


def test_masks_agree(torch: Any) -> None:
    """How many elements there are depends on the data."""

    class Masks(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, m: Any) -> Any:
            return x[m], x.nonzero(), x.masked_select(m[:, None]), torch.unique(x)

    x, m = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]]), torch.tensor([True, False, True])
    check_cases({"masks": (Masks(), [x, m])})


def test_embedding_bags_agree(torch: Any) -> None:
    f = torch.nn.functional
    rows, indices, offsets = torch.randn(9, 4), torch.randint(0, 9, (7,)), torch.tensor([0, 2, 2, 6])
    ends = torch.tensor([0, 2, 2, 7])
    cases: dict[str, Case] = {mode: (_bag(f, mode), [indices, rows, offsets]) for mode in ("sum", "mean", "max")}
    cases |= {
        "weights": (
            lambda i, r, o, w: f.embedding_bag(i, r, o, mode="sum", per_sample_weights=w),
            [indices, rows, offsets, torch.randn(7)],
        ),
        "padding": (lambda i, r, o: f.embedding_bag(i, r, o, padding_idx=3), [indices, rows, offsets]),
        "last": (lambda i, r, o: f.embedding_bag(i, r, o, include_last_offset=True), [indices, rows, ends]),
        "matrix": (lambda i, r: f.embedding_bag(i, r), [indices[:6].reshape(2, 3), rows]),
    }
    check_cases(cases)


def _bag(f: Any, mode: str) -> Any:
    return lambda i, r, o: f.embedding_bag(i, r, o, mode=mode)


def test_sorts_agree(torch: Any) -> None:
    x = torch.randn(3, 7)
    odd = x.clone()
    odd[1, 2] = math.nan
    ties = torch.randint(0, 3, (3, 7))
    edges = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    functions = {
        "sort": lambda x: x.sort(), "sort down": lambda x: x.sort(0, descending=True),
        "stable": lambda x: torch.sort(x, stable=True, dim=1), "argsort": lambda x: x.argsort(dim=1, stable=True),
        "msort": torch.msort, "topk": lambda x: x.topk(3), "topk least": lambda x: x.topk(2, 0, largest=False),
        "kthvalue": lambda x: x.kthvalue(3), "median": lambda x: x.median(), "cummax": lambda x: x.cummax(1),
        "cummin": lambda x: x.cummin(0), "logcumsumexp": lambda x: x.logcumsumexp(1),
        "isin": lambda x: torch.isin(x, x[0, :2]), "histc": lambda x: torch.histc(x, 5, -2, 2),
        "cdist": lambda x: torch.cdist(x, x[:2]), "cdist 1": lambda x: torch.cdist(x, x[:2], p=1.0),
        "median dim": lambda x: x.median(1), "median keep": lambda x: x.median(0, True), "pdist": torch.pdist,
        "renorm": lambda x: torch.renorm(x, 2, 0, 1.5),
    }  # fmt: skip
    cases: dict[str, Case] = {name: (function, [x]) for name, function in functions.items()}
    for name in ("sort", "median", "median dim", "cummax", "cummin", "logcumsumexp", "sort down"):
        cases[f"{name} of NaN"] = (functions[name], [odd])
    for name in ("stable", "argsort", "cummax", "cummin"):
        cases[f"{name} of ties"] = (functions[name], [ties])
    for right in (False, True):
        cases[f"bucketize {right}"] = (_bucketize(torch, right), [x, edges])
        cases[f"searchsorted {right}"] = (_searchsorted(torch, right), [x.sort().values, x + 0.1])
        cases[f"searchsorted line {right}"] = (_searchsorted(torch, right), [edges, odd])
    check_cases(cases)


def _bucketize(torch: Any, right: bool) -> Any:
    return lambda x, edges: torch.bucketize(x, edges, right=right)


def _searchsorted(torch: Any, right: bool) -> Any:
    return lambda edges, x: torch.searchsorted(edges, x, right=right)


def test_losses_agree(torch: Any) -> None:
    f, r = torch.nn.functional, torch.randn
    x, y, p, q = r(4, 5), r(4, 5), torch.rand(4, 5), torch.rand(4, 5)
    classes, weight = torch.tensor([0, 4, 2, 2]), torch.rand(5)
    sign = torch.sign(r(4, 5))
    cases: dict[str, Case] = {}
    for how in ("none", "mean", "sum"):
        cases |= {
            f"mse {how}": (_loss(f.mse_loss, how), [x, y]),
            f"l1 {how}": (_loss(f.l1_loss, how), [x, y]),
            f"smooth {how}": (_loss(f.smooth_l1_loss, how, beta=0.7), [x, y]),
            f"huber {how}": (_loss(f.huber_loss, how, delta=0.7), [x, y]),
            f"bce {how}": (_loss(f.binary_cross_entropy, how), [p, q]),
            f"bce logits {how}": (_loss(f.binary_cross_entropy_with_logits, how), [x, q]),
            f"soft margin {how}": (_loss(f.soft_margin_loss, how), [x, sign]),
            f"hinge {how}": (_loss(f.hinge_embedding_loss, how), [x, sign]),
            f"ranking {how}": (_loss3(f.margin_ranking_loss, how), [x, y, sign]),
            f"nll {how}": (_loss(f.nll_loss, how), [x, classes]),
            f"nll weight {how}": (_loss3(f.nll_loss, how), [x, classes, weight]),
            f"entropy {how}": (_loss(f.cross_entropy, how), [x, classes]),
            f"entropy ignored {how}": (_loss(f.cross_entropy, how, ignore_index=2), [x, classes]),
            f"entropy weight {how}": (_loss3(f.cross_entropy, how), [x, classes, weight]),
            f"entropy of probabilities {how}": (_loss(f.cross_entropy, how, label_smoothing=0.1), [x, q]),
            f"entropy images {how}": (_loss(f.cross_entropy, how), [r(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))]),
        }
    for how in ("none", "sum", "batchmean"):
        cases[f"kl {how}"] = (_loss(f.kl_div, how), [x, q])
        cases[f"kl log {how}"] = (_loss(f.kl_div, how, log_target=True), [x, y])
    cases["bce weights"] = (
        lambda x, y, w: f.binary_cross_entropy_with_logits(x, y, pos_weight=w),
        [x, q, weight],
    )
    check_cases(cases)


def _loss(function: Any, how: str, **arguments: Any) -> Any:
    return lambda x, y: function(x, y, reduction=how, **arguments)


def _loss3(function: Any, how: str) -> Any:
    return lambda x, y, z: function(x, y, z, reduction=how)


def test_quantization_agrees(torch: Any) -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators  # noqa: F401

    q = torch.ops.quantized_decomposed
    x = torch.randn(3, 4) * 3
    scales, zeros = torch.tensor([0.05, 0.1, 0.02, 0.3]), torch.tensor([0, 3, -5, 1])
    cases: dict[str, Case] = {
        "there": (lambda x: q.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8), [x]),
        "narrow": (lambda x: q.quantize_per_tensor(x, 0.05, 0, -8, 7, torch.int8), [x]),
        "and back": (
            lambda x: q.dequantize_per_tensor(
                q.quantize_per_tensor(x, 0.05, 3, 0, 255, torch.uint8), 0.05, 3, 0, 255, torch.uint8
            ),
            [x],
        ),
        "channels": (lambda x, s, z: q.quantize_per_channel(x, s, z, 1, -128, 127, torch.int8), [x, scales, zeros]),
        "channels back": (
            lambda x, s, z: q.dequantize_per_channel(x, s, z, 1, -128, 127, torch.int8),
            [(x * 10).to(torch.int8), scales, zeros],
        ),
        "fake": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 2, -128, 127), [x]),
        "fake channels": (
            lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -128, 127),
            [x, scales, zeros.to(torch.int32)],
        ),
    }
    check_cases(cases)
