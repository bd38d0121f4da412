"""Chains of many small layers, for compile times: each layer is equal to the ones before but for its weights."""

from __future__ import annotations

from bench.speed.texts import Text, Writer


def matmul_chain(layers: int) -> Text:
    """Products with biases and activations: 4 x 32."""
    w = Writer()
    x = w.param("x", 4, 32)
    for i in range(layers):
        x = w.let(f"R.nn.relu({w.linear(x, f'l{i}', 32, 32)})")
    return w.text(x, (4, 32))


def conv_chain(layers: int) -> Text:
    """Convolutions of 3 x 3 with biases and activations: 8 channels of 16 x 16."""
    w = Writer()
    x = w.param("x", 1, 8, 16, 16)
    for i in range(layers):
        x = w.let(f"R.nn.relu({w.conv_bias(x, f'l{i}', 8, 8, 3)})")
    return w.text(x, (1, 8, 16, 16))


def residual_chain(layers: int) -> Text:
    """Blocks of two convolutions and an addition of what they read, kept between 0 and 6; two layers each."""
    w = Writer()
    x = w.param("x", 1, 8, 16, 16)
    for i in range(layers // 2):
        y = w.let(f"R.nn.relu({w.conv_bias(x, f'l{i}_1', 8, 8, 3)})")
        y = w.conv_bias(y, f"l{i}_2", 8, 8, 3)
        x = w.let(f"R.nn.relu6({w.let(f'R.add({y}, {x})')})")
    return w.text(x, (1, 8, 16, 16))


def elementwise_chain(layers: int) -> Text:
    """Additions of a vector, multiplications by one, and activations in turn: 64 x 64."""
    w = Writer()
    x, a, b = w.param("x", 64, 64), w.weight("a", 64), w.weight("b", 64)
    for i in range(layers):
        x = w.let((f"R.add({x}, {a})", f"R.nn.gelu({x})", f"R.multiply({x}, {b})")[i % 3])
    return w.text(x, (64, 64))


CHAINS = {"matmul": matmul_chain, "conv": conv_chain, "residual": residual_chain, "elementwise": elementwise_chain}
