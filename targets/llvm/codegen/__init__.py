"""Loop code as LLVM IR: the code generator that CPUs, PTX and emulation share."""
