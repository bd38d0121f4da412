"""The cuda target: kernels of `mlcc.passes.gpu` to NVVM LLVM IR and, by LLVM, to PTX. No toolkit and no GPU needed."""
