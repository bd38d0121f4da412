"""Small models, of the shapes of MLPerf Tiny and of the sample of handwritten digits, in float32, at batch 1.

The shapes are those of the reference models of https://github.com/mlcommons/tiny: norms are folded into weights and
biases, and images have their channels in front.
"""

from __future__ import annotations

from bench.speed.texts import Text, Writer
from bench.speed.workloads import Workload

MOBILE_STAGES = (  # of MobileNetV1 at a width of 0.25: channels, and the stride of the depthwise convolution
    (16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (128, 1), (128, 1), (128, 1),
    (256, 2), (256, 1),
)  # fmt: skip


def digits() -> Text:
    """The classifier of 8 x 8 digits in `samples/digits`: 64-64-10."""
    w = Writer()
    x = w.let(f"R.nn.relu({w.linear(w.param('x', 1, 64), 'hidden', 64, 64)})")
    return w.text(w.linear(x, "scores", 64, 10), (1, 10))


def keyword_spotting() -> Text:
    """DS-CNN for 12 words: 49 frames of 10 features, four depthwise-separable blocks of 64 channels."""
    w = Writer()
    x = w.conv_bias(w.param("x", 1, 1, 49, 10), "stem", 1, 64, (10, 4), 2, padding=(4, 1, 5, 1))
    x = w.let(f"R.nn.relu({x})")
    for block in range(4):
        x = w.let(f"R.nn.relu({w.conv_bias(x, f'b{block}_each', 64, 64, 3, groups=64)})")
        x = w.let(f"R.nn.relu({w.conv_bias(x, f'b{block}_point', 64, 64, 1)})")
    x = w.let(f"R.mean({x}, axis=[2, 3], keepdims=False)")
    return w.text(w.let(f"R.nn.softmax({w.linear(x, 'dense', 64, 12)}, axis=-1)"), (1, 12))


def anomaly_detection() -> Text:
    """An auto-encoder of spectrograms: 640 - 4 x 128 - 8 - 4 x 128 - 640."""
    w = Writer()
    x, inner = w.param("x", 1, 640), 640
    for layer, outer in enumerate((128, 128, 128, 128, 8, 128, 128, 128, 128)):
        x = w.let(f"R.nn.relu({w.linear(x, f'l{layer}', inner, outer)})")
        inner = outer
    return w.text(w.linear(x, "out", inner, 640), (1, 640))


def person_detection() -> Text:
    """MobileNetV1 at a width of 0.25 for 96 x 96 images in colour and two classes."""
    w = Writer()
    x = w.let(f"R.nn.relu({w.conv_bias(w.param('x', 1, 3, 96, 96), 'stem', 3, 8, 3, 2, padding=(0, 0, 1, 1))})")
    inner = 8
    for stage, (outer, stride) in enumerate(MOBILE_STAGES):
        around = 1 if stride == 1 else (0, 0, 1, 1)
        x = w.conv_bias(x, f"s{stage}_each", inner, inner, 3, stride, groups=inner, padding=around)
        x = w.conv_bias(w.let(f"R.nn.relu({x})"), f"s{stage}_point", inner, outer, 1)
        x, inner = w.let(f"R.nn.relu({x})"), outer
    x = w.let(f"R.mean({x}, axis=[2, 3], keepdims=False)")
    return w.text(w.let(f"R.nn.softmax({w.linear(x, 'dense', inner, 2)}, axis=-1)"), (1, 2))


SMALL = (
    Workload("digits", digits),
    Workload("keyword_spotting", keyword_spotting),
    Workload("anomaly_detection", anomaly_detection),
    Workload("person_detection", person_detection),
)
