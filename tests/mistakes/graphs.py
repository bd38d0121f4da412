"""Mistakes in relax functions."""

from __future__ import annotations

from tests.mistakes.case import Case

_HEAD = '@R.function\ndef main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32")):\n'

_IMAGE = ('a = R.zeros((1, 3, 8, 8), "float32")', 'b = R.zeros((4, 3, 3, 3), "float32")')


def body(name: str, *lines: str, ends: str = "return y") -> Case:
    """A relax function whose body is `lines`."""
    text = _HEAD + "".join(f"    {line}\n" for line in (*lines, ends) if line)
    return Case(name, "mlcc check a.mlc", {"a.mlc": text})


def text(name: str, whole: str) -> Case:
    return Case(name, "mlcc check a.mlc", {"a.mlc": whole})


CASES = [
    # Python, NumPy and PyTorch
    text("torch.float32", "@R.function\ndef main(x: R.Tensor((4,), torch.float32)):\n    return x\n"),
    text("np.float64", "@R.function\ndef main(x: R.Tensor((4,), np.float64)):\n    return x\n"),
    text("torch.long", "@R.function\ndef main(x: R.Tensor((4,), dtype=torch.long)):\n    return x\n"),
    text("fp32", '@R.function\ndef main(x: R.Tensor((4,), "fp32")):\n    return x\n'),
    body("np.float32 of a number", "y = R.add(x, np.float32(2))"),
    body("fraction beside integers", 'n = R.zeros((4, 8), "int64")', "y = n * 2.5"),
    body("bias of channels", *_IMAGE, "y = R.nn.conv2d(a, b, padding=1) + R.zeros((4,), 'float32')"),
    body("np.add", "y = np.add(x, x)"),
    body("np.matmul", "y = np.matmul(x, w)"),
    text("import numpy", "import numpy as np\n" + _HEAD + "    y = np.add(x, x)\n    return y\n"),
    body("torch.relu", "y = torch.relu(x)"),
    body("F.softmax", "y = F.softmax(x, dim=1)"),
    body("tf.nn.conv2d", "y = tf.nn.conv2d(x, w)"),
    body("jnp.dot", "y = jnp.dot(x, w)"),
    body("math.sqrt", "y = math.sqrt(x)"),
    body("@", "y = x @ w"),
    body("@=", "y = x", "y @= w"),
    body("slice", "y = x[0:2]"),
    body("slice of columns", "y = x[:, ::2]"),
    body("row", "y = x[0]"),
    body("element", "y = x[0, 1]"),
    body("ellipsis", "y = x[..., 0]"),
    body("new axis", "y = x[None]"),
    body("mask", "y = x[x > 0]"),
    body("x.reshape", "y = x.reshape(32)"),
    body("x.sum", "y = x.sum()"),
    body("x.T", "y = x.T"),
    body("x.matmul", "y = x.matmul(w)"),
    body("x.shape", "y = R.reshape(x, (x.shape[0] * x.shape[1],))"),
    body("x.view", "y = x.view(-1)"),
    body("lambda", "f = lambda v: R.nn.relu(v)", "y = f(x)"),
    body("len", 'y = R.zeros((len(x),), "float32")'),
    body("print", "print(x)", "y = x"),
    body("for", "for i in range(3):", "    y = R.add(x, x)"),
    body("while", "while True:", "    y = R.add(x, x)"),
    body("comprehension", "y = R.concat([x for i in range(3)])"),
    body("conditional expression", "y = x if True else w"),
    body("and", "y = x and x"),
    body("not", "y = not x"),
    body("f-string", 'y = R.print(x, format=f"x={x}")'),
    body("store into a tensor", "x[0] = 1.0", "y = x"),
    body("assert", "assert x.shape[0] == 4", "y = x"),
    body("try", "try:", "    y = R.add(x, x)", "except ValueError:", "    y = x"),
    body("walrus", "y = R.add((z := x), x)"),
    text(
        "nn.Module",
        "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
    ),
    text("def without a decorator", "def main(x, w):\n    return x\n"),
    text("no decorator", _HEAD.replace("@R.function\n", "") + "    return x\n"),
    text(
        "class without a decorator",
        'class Net:\n    @R.function\n    def main(x: R.Tensor((4,), "float32")):\n        return x\n',
    ),
    text("statement outside", 'x = R.zeros((4,), "float32")\nprint(x)\n'),
    text("if __name__", _HEAD + '    return x\n\nif __name__ == "__main__":\n    main()\n'),
    # operators
    body("R.nn.linear", "y = R.nn.linear(x, w)"),
    body("R.relu", "y = R.relu(x)"),
    body("R.softmax", "y = R.softmax(x)"),
    body("R.mul", "y = R.mul(x, x)"),
    body("R.sub", "y = R.sub(x, x)"),
    body("R.dot", "y = R.dot(x, w)"),
    body("R.pow", "y = R.pow(x, x)"),
    body("R.nn.maxpool2d", "y = R.nn.maxpool2d(x)"),
    body("R.cast", 'y = R.cast(x, "float16")'),
    body("R.nn.RELU", "y = R.nn.ReLU(x)"),
    body("R.nn.sigmoid", "y = R.nn.sigmoid(x)"),
    body("dim for axis", "y = R.sum(x, dim=1)"),
    body("stride for strides", "y = R.nn.conv2d(x, w, stride=2)"),
    body("kernel_size", "y = R.nn.max_pool2d(x, kernel_size=2)"),
    body("axes for axis", "y = R.nn.softmax(x, axes=1)"),
    body("too few arguments", "y = R.add(x)"),
    body("too many arguments", "y = R.add(x, x, x)"),
    body("shapes of matmul", "y = R.matmul(w, x)"),
    body("shapes of add", "y = R.add(x, w)"),
    body("dtypes of add", 'z = R.astype(x, "float16")', "y = R.add(x, z)"),
    body("axis out of range", "y = R.sum(x, axis=2)"),
    body("reshape to another size", "y = R.reshape(x, (5, 5))"),
    body("condition of where", "y = R.where(x, x, x)"),
    body("padding as a word", *_IMAGE, 'y = R.nn.conv2d(a, b, padding="same")'),
    body("channels of a convolution", *_IMAGE, "y = R.nn.conv2d(b, R.nn.relu(R.zeros((8, 4, 3, 3), 'float32')))"),
    body("permutation", "y = R.permute_dims(x, axes=[0, 0])"),
    # functions, types and structure
    body("no return", "y = R.add(x, x)", ends=""),
    body("unknown name", "y = R.add(x, z)"),
    body("unknown function of the module", "y = cls.scale(x)"),
    body("unknown function in call_tir", 'y = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((4, 8), "float32"))'),
    body("if without else", 'c = R.const(True, "bool")', "if c:", "    y = x"),
    body("no R.output", "with R.dataflow():", "    y = R.add(x, x)"),
    body(
        "hidden by a dataflow block",
        "with R.dataflow():",
        "    z = R.add(x, x)",
        "    v = R.add(z, z)",
        "    R.output(v)",
        "y = R.add(z, z)",
    ),
    body("index of a tuple", "t = (x, w)", "y = t[2]"),
    body("names for a tuple", "y, z, v = (x, w)"),
    text("parameter without a type", "@R.function\ndef main(x):\n    return x\n"),
    text("dtype", '@R.function\ndef main(x: R.Tensor((4,), "float23")):\n    return x\n'),
    text("dtype of Python", "@R.function\ndef main(x: R.Tensor((4,), float)):\n    return x\n"),
    text("shape without brackets", '@R.function\ndef main(x: R.Tensor(4, 8, "float32")):\n    return x\n'),
    text("unknown size", '@R.function\ndef main(x: R.Tensor((n, 4), "float32")):\n    return x\n'),
    text("torch.Tensor", "@R.function\ndef main(x: torch.Tensor):\n    return x\n"),
    text("two functions of one name", 2 * (_HEAD + "    return x\n\n")),
    text("R.func", _HEAD.replace("@R.function", "@R.func") + "    return x\n"),
    # characters
    text("no colon", _HEAD.replace("):\n", ")\n") + "    return x\n"),
    body("bracket", "y = R.add(x, (x)"),
    body("indentation", "  y = R.add(x, x)", "y = R.add(x, x)"),
    body("tab", "y = R.add(x, x)", "\ty = R.add(x, x)"),
    body("quotes of a word processor", "y = R.astype(x, “float16”)"),
    body("comment of C", "// the sum", "y = R.add(x, x)"),
    body("no commas", "y = R.add(x x)"),
    body("an open string", 'y = R.astype(x, "float16)'),
]
