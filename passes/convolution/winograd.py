"""The pass `winograd`: convolutions by Winograd's algorithm."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.backends import cpu_facts
from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tensor_data import TensorData
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.convolution.winograd_choice import MAX_ERROR, Choice, admitted_error, choose_variant, convolution_shape
from mlcc.passes.convolution.winograd_kernel import winograd_function
from mlcc.passes.graph.clean_up import clean_up_rewritten
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_with_added_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import call_tir, tensor_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import DefUse, is_call

BLOCK_OUTPUTS = 128  # output channels whose weights are transformed at a time


@dataclass(frozen=True)
class Winograd(Pass):
    """Compute convolutions with constant weights by Winograd's algorithm, where that is expected to be faster.

    F(m x m, r x r) computes m x m results of a window of r x r with (m + r - 1)**2 products for each pair of channels,
    in place of m * m * r * r. Weights are transformed at compile time (in float64). The convolutions are float32, of
    stride and dilation 1, in one group, with the channels last, and with channels in multiples of 8.

    Rounding errors differ from variant to variant. Those admitted have at most `max-error` times the expected error of
    a direct convolution (at most 4 times with the target option `fast-math`); 0 turns the pass off. With `always`,
    the fastest one is taken whether it pays or not.

    Before:  lv = R.nn.conv2d(x, R.const(...), padding=[1, 1, 1, 1], data_layout="NHWC")
    After:   lv = R.call_tir(cls.conv2d_winograd, (x, R.const(...)), ...)     # F(2x2, 3x3)
    """

    name: ClassVar[str] = "winograd"
    max_error: float = MAX_ERROR
    always: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        if not self.max_error >= 0:  # NaN too
            message = f"`winograd`: max-error is a number from 0 on, not {self.max_error}"
            raise CompileError(error("E0503", message, help="1.25 is the default; 0 keeps convolutions direct"))
        facts = cpu_facts(ctx.target)
        if facts is None or self.max_error <= 0:
            return module
        builder = ModuleBuilder(module)
        limit = admitted_error(self.max_error, ctx.target)

        def change(_: str, func: relax.Function) -> relax.Function:
            rewriter = _Rewriter(builder, DefUse.of(func), facts, limit, self.always)
            return clean_up_rewritten(rewriter.visit_function(func), func, builder.module)

        return map_with_added_functions(module, builder, change)


class _Rewriter(RelaxMutator):
    def __init__(
        self, builder: ModuleBuilder, uses: DefUse, facts: CpuFacts, max_error: float, always: bool
    ) -> None:  # fmt: skip
        super().__init__(builder.module)
        self.builder, self.uses, self.facts = builder, uses, facts
        self.max_error, self.always = max_error, always
        self._functions: dict[Any, tuple[str, tir.PrimFunc]] = {}

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call) or not is_call(expr, "relax.nn.conv2d"):
            return expr
        weight = self.uses.resolve(expr.args[1])
        if not isinstance(weight, relax.Constant) or weight.data.array is None:
            return expr
        if expr.attrs["data_layout"] != "NHWC" or expr.attrs["out_layout"] != "NHWC":
            return expr
        choice = choose_variant(expr, self.facts, self.max_error, self.always)
        return expr if choice is None else self.winograd(expr, weight.data, choice)

    def winograd(self, call: relax.Call, weight: TensorData, choice: Choice) -> relax.Expr:
        """Return the call of a function that computes a convolution by a variant of the algorithm."""
        shape = convolution_shape(call)
        assert shape is not None
        key = dataclasses.replace(shape, batch=None), tir.const_int(shape.batch), choice  # type: ignore[arg-type]
        if key not in self._functions:
            function = winograd_function(shape, choice.variant, str(choice))
            self._functions[key] = self.builder.add(function, "conv2d_winograd"), function
        name, function = self._functions[key]
        transformed = transformed_weights(weight, call.attrs["kernel_layout"], choice)
        info: Any = call.struct_info
        made = call_tir(name, function, [call.args[0], transformed], info)
        return replace(made, span=call.span)


def transformed_weights(weight: TensorData, layout: str, choice: Choice) -> relax.Constant:
    """Return the weights in the transformed domain, (rows, columns, I, O): G w G^T, computed in float64."""
    import numpy as np

    down, across = (np.array(t.weight_matrix, "float64") for t in (choice.variant.down, choice.variant.across))
    array: Any = weight.array
    taps = array.transpose([layout.index(letter) for letter in "OIHW"])
    outputs, inputs, rows, columns = taps.shape
    places = np.kron(down, across)  # both transforms as one product of matrices
    values = np.empty((len(places), inputs, outputs), "float32")
    for at in range(0, outputs, BLOCK_OUTPUTS):
        block = taps[at : at + BLOCK_OUTPUTS].reshape(-1, rows * columns).astype("float64")
        of_block = (places @ block.T).reshape(len(places), -1, inputs)
        values[:, :, at : at + BLOCK_OUTPUTS] = of_block.transpose(0, 2, 1)
    weight.release()
    data = TensorData.of(values.reshape(len(down), len(across), inputs, outputs))
    return relax.Constant(data, tensor_info((c.const(n, "int64") for n in data.shape), data.dtype))
