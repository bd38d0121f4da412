from probe import *

x = np.array([np.nan, -1, np.inf, 2], "float32")
print(run(lambda p: op.multiply(p, relax.const(0.0, "float32")), x))
print(
    run(lambda p: op.where(op.less(p, relax.const(-0.3, "float32")), p, op.multiply(p, relax.const(0.0, "float32"))), x)
)
print(
    run(
        lambda p: op.where(
            op.greater(p, relax.const(0.3, "float32")),
            op.subtract(p, relax.const(0.3, "float32")),
            op.where(op.less(p, relax.const(-0.3, "float32")), p, op.multiply(p, relax.const(0.0, "float32"))),
        ),
        x,
    )
)
