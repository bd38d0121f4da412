"""Diagnostic codes: targets."""

CODES: dict[str, tuple[str, str]] = {
    "E0701": (
        "no code for this construct",
        "The function uses something that the llvm target cannot compile: an intrinsic of another kind of device, an "
        "extern that is not allowed, a dtype without a machine form (4-bit integers), or operands that an intrinsic "
        "does not take. The message names it. Externs other than libm's must be allowed one by one: --allow-extern "
        "NAME.",
    ),
    "E0702": (
        "no such function",
        "A call names a PrimFunc that the module does not have.",
    ),
    "E0703": (
        "recursive functions",
        "A PrimFunc calls itself, directly or through others. Kernels plan their memory before they run, so recursion "
        "is not supported.",
    ),
    "E0704": (
        "a buffer is too large",
        "The constant dimensions or strides of a buffer need more bytes than can be addressed, or those of a "
        "temporary more than any machine has.",
    ),
    "E0705": (
        "unknown triple",
        "Objects can only be made for the systems that are tested: Linux with the GNU C library or musl, and bare "
        "metal, on 64-bit x86, ARM and RISC-V (docs/targets.md, Systems). LLVM aborts the process on some combinations "
        "that it does not support, so all others are refused.",
    ),
    "E0706": (
        "unknown CPU",
        "The name is not among the CPUs known for this triple. `generic` always is.",
    ),
    "E0707": (
        "code that needs several threads",
        "A CPU runs loops bound to thread axes as plain loops, one iteration after the other. Code that depends on "
        "other threads (barriers, shuffles, cross-thread reductions, memory shared by launched threads) would compute "
        "something else and is refused. Schedule the function for the CPU, or compile it for a GPU.",
    ),
    "E0708": (
        "a call or access does not match",
        "A buffer is accessed with the wrong number of indices, a PrimFunc is called with the wrong number of "
        "arguments, or the values of its symbolic dimensions cannot be derived from the arguments.",
    ),
    "E0709": (
        "native code inside a program",
        "An annotation (`pragma_import_llvm`) contains LLVM IR for `T.call_extern`. Such code runs with your rights, "
        "so the command line compiles it only with --allow-native; `mlcc.build` compiles it by default. C code "
        "(`pragma_import_c`) is not compiled: translate it to LLVM IR with clang.",
    ),
    "E0710": (
        "native code that cannot be linked",
        "LLVM IR in a text is checked and compiled in a separate process. It may define functions and constants; it "
        "must not contain assembly code, writable variables, start-up code, sections or aliases, and may only call "
        "itself, libm and allowed externs. This code also covers text that makes LLVM crash or run too long.",
    ),
    "E0711": (
        "native code defines a function twice",
        "Two texts of LLVM IR define the same function, or one that libm, an allowed extern or a PrimFunc of the "
        "module defines already.",
    ),
    "E0712": (
        "code that needs an operating system",
        "Freestanding code (for bare metal, or with `freestanding=true`) has no allocator and no threads: memory is on "
        "the stack or in the workspace that the caller passes. A temporary buffer whose size is known only inside a "
        "loop would be allocated there. Give it a bound that is known when the function is called.",
    ),
    "E0720": (
        "host code accesses device memory",
        "On a GPU, all statements that read or write tensors must be inside loops bound to thread axes, or launch "
        "scopes. The rest runs on the host, which allocates and launches but cannot compute on tensors. Bind a loop "
        "around the statement, or run the pass `bind-threads`.",
    ),
    "E0721": (
        "not a thread axis",
        "Loops of GPU code can be bound to blockIdx.x, .y, .z, threadIdx.x, .y, .z, and to virtual threads (vthread).",
    ),
    "E0722": (
        "the number of threads is unknown at launch",
        "The host computes the extents of a launch from the sizes of the parameters. An extent that depends on loops "
        "inside the kernel is replaced by its upper bound; one that depends on the contents of memory has none. Bind "
        "a loop of fixed extent, and move the condition into its body.",
    ),
    "E0723": (
        "on-chip memory is used outside its lifetime",
        "A `local` buffer belongs to one thread, a `shared` buffer to one block, and both end with the kernel. The "
        "program uses such a buffer in two kernels; use scope `global` for data that outlives a kernel.",
    ),
    "E0724": (
        "blocks would have to wait for each other",
        "Code outside the loops over blocks changes memory that all blocks read. Blocks run in any order and cannot "
        "synchronise: move the code to a loop nest of its own, which becomes an earlier kernel.",
    ),
    "E0725": (
        "nested loops bound to one axis do not agree",
        "A loop bound to a thread axis inside another loop bound to the same axis distributes its iterations over the "
        "same threads. Both must have the same extent, and the inner one must not depend on the outer variable.",
    ),
    "E0726": (
        "a barrier in divergent code",
        "All threads of a block must reach a barrier; otherwise those that do wait forever. A barrier is written "
        "here, or needed (a thread reads what another one wrote), under a condition or in a loop that is not uniform "
        "across the threads. Move the exchange out of it, or move the condition to the other statements.",
    ),
    "E0727": (
        "memory of one thread is read by another",
        "Memory of scope `local` is private to a thread, in registers. Loops bound to threads distribute the writes "
        "to it, and other loops the reads, so that a thread would read what it never wrote. Use scope `shared` "
        "(visible to the threads of a block) or `warp` (to those of a warp), or distribute both by the same loops.",
    ),
    "E0728": (
        "an unsupported cross-thread reduction",
        "A block whose reduction axes are bound to threads combines the values of the threads. Its reducer must be "
        "known (sum, product, minimum, maximum, and, or, argmax, argmin, or one with an identity), it must not be "
        "decomposed, its reduction axes must not be bound to blocks, and there must be no other statement between the "
        "loops and the block. `rfactor` splits the block in two.",
    ),
    "E0729": (
        "code that host code cannot run",
        "Between launches, the host computes scalars, runs loops and branches over them, and allocates memory. It "
        "cannot access device memory element by element: bind the loops that do to threads.",
    ),
    "E0730": (
        "a kernel uses something that GPUs have no code for",
        "A kernel is the code of one thread: it can use arithmetic, memory, barriers, shuffles and atomic additions, "
        "but cannot call packed functions, other PrimFuncs, or C. The message names the construct. A function that is "
        "already a kernel (`tir.is_global_func`) needs its launch scopes around all of its code, one for each axis, "
        "and the sizes that it uses among its parameters.",
    ),
    "E0731": (
        "unsupported GPU architecture",
        "Only architectures whose code was generated and assembled in tests are passed to LLVM, which aborts the "
        "process on others. Code for `sm_90` runs on compute capability 9.0 and later, for `sm_90a` on 9.0 only, for "
        "`sm_100f` on 10.x.",
    ),
    "E0732": (
        "a kernel exceeds the limits of the GPU",
        "A block has at most 1024 threads (64 along z) and 48 KiB of static shared memory, a thread 512 KiB of local "
        "memory, and a launch 4 KiB of arguments (32764 bytes from sm_100 on).",
    ),
    "E0740": (
        "a barrier that not all threads reach",
        "Found by emulation: at `T.tvm_storage_sync` some threads of the block (or of the warp) wait for others that "
        "diverged. A GPU hangs, or computes wrong results. Make the condition or loop uniform, or move the barrier "
        "out of it.",
    ),
    "E0741": (
        "a data race between two writes",
        "Found by emulation: two threads write different values to one element without synchronisation, so that the "
        "result is undefined. Blocks of one launch are never ordered. Writing the same value twice is allowed.",
    ),
    "E0742": (
        "a data race between a read and a write",
        "Found by emulation: one thread writes what another one reads, and no barrier orders the two accesses. In a "
        "loop, the read of one iteration may race with the write of the next.",
    ),
    "E0743": (
        "uninitialised shared memory",
        "Found by emulation: an element of shared memory is read that no thread of the block has written. Its value "
        "on a GPU is undefined.",
    ),
    "E0744": (
        "an out-of-bounds access",
        "Found by emulation: an index into a buffer in global, shared or local memory is negative or too large. The "
        "access is skipped, and the kernel continues.",
    ),
    "E0745": (
        "a shuffle that names inactive lanes",
        "Found by emulation: the mask of a warp shuffle names lanes that have diverged, which is undefined on a GPU. "
        "`T.tvm_warp_activemask()` returns the active lanes.",
    ),
    "E0736": (
        "no checks in this code",
        "`--sanitize` applies to code for CPUs and to texts; an artifact has checks if it was compiled with `mlcc "
        "compile --sanitize`. Code for a GPU is checked by emulation (`mlcc run -t cuda --emulate`).",
    ),
    "E0739": (
        "misuse of a barrier in memory",
        "Found by emulation: a thread uses memory that is not initialised as a barrier, or a phase receives more "
        "arrivals or bytes than it expects. `T.ptx_init_barrier_thread_count` sets the number of arrivals of a phase, "
        "and `T.ptx_arrive_barrier_expect_tx` the bytes of bulk copies that it waits for.",
    ),
    "E0746": (
        "a wait that never ends",
        "Found by emulation: threads wait at a barrier in memory for a phase that no earlier code completes. Arrivals "
        "or bytes are missing, or the parity is that of the next phase. The emulator runs branches one after the "
        "other, so that it also reports a wait for a later branch.",
    ),
    "E0747": (
        "a kernel that cannot be analyzed",
        "`mlcc analyze` runs a function of a module for a GPU on the CPU. It needs a GPU target.",
    ),
    "E0748": (
        "nothing to emulate",
        "Emulation compiles the kernels of a module for the CPU. It needs the result of `mlcc.build` for a GPU, the "
        "text of the module with `-t cuda`, or a .ptx or .mlca file written by this version of mlcc: such a file "
        "contains the text of its kernels, which another version might compile differently.",
    ),
    "E0749": (
        "GPU code that cannot be emulated",
        "The emulator runs the threads of a kernel one after the other between collective calls (barriers, shuffles). "
        "A collective call cannot be emulated inside an expression that only some threads evaluate, or in the "
        "condition of a while loop: bind its value in a statement of its own.",
    ),
    "E0770": (
        "a loop cannot be pipelined",
        "`software_pipeline_stage` has one number for each statement of the loop's body: those of the block in it if "
        "it has a single block, and 3 for a nested pipeline (prologue, body, epilogue). `software_pipeline_order` "
        "gives their order, and `software_pipeline_async_stages` lists stages. The loop must be serial, with step 1.",
    ),
    "E0771": (
        "a pipeline would violate a dependence",
        "Two statements of a pipelined loop use the same memory, and one of them writes it. The earlier one must have "
        "a lower stage, or the same stage and an earlier place in the order. Memory allocated outside the loop is "
        "shared by its iterations, so that a statement can only run ahead of another by the distance of their "
        "accesses in iterations. Allocate a buffer inside the loop if it is only used there.",
    ),
    "E0772": (
        "warp memory that no thread holds",
        "A buffer of scope `warp` is distributed over the registers of the warp's threads: a thread holds the "
        "elements whose index is `threadIdx.x` times a constant, plus less than that constant. It writes only its own "
        "elements, and reads others one at a time (by shuffles). There must be 32 threads along `threadIdx.x`, or a "
        "divisor or multiple of 32. Scope `warpgroup` distributes over a multiple of 128 threads, which only access "
        "their own elements.",
    ),
    "E0773": (
        "misuse of a matrix intrinsic",
        "The tensor core intrinsics (`ptx_mma`, `ptx_ldmatrix`, `mma_fill`, `mma_store`, `tvm_load_matrix_sync` and "
        "so on) take the shapes and types that the hardware supports, as constants, and all threads of a warp must "
        "reach them.",
    ),
    "E0774": (
        "an unsupported swizzle of shared memory",
        "`permuted_layout` on a block swizzles the shared memory that it uses: chunks of 16 bytes are permuted within "
        "rows of the given width (128, 64 or 32 bytes), or of the greatest of these that divides a row if the value "
        "is 1. Rows, which the last index counts, must be contiguous. Such memory can be accessed by index, by "
        "`ldmatrix`, by asynchronous copies, and by intrinsics that support the layout.",
    ),
    "E0776": (
        "an unknown barrier",
        "`T.create_barriers(n)` allocates barriers 0 to n - 1 of a block in shared memory. Calls refer to them by "
        "number, or by the address of an element of a uint64 buffer in shared memory.",
    ),
    "E0777": (
        "an invalid tensor map",
        "`T.tensor_map` describes a tensor in global memory to the copy engine: a dtype, a pointer, a rank (1 to 5) "
        "and a swizzle (0, 32, 64 or 128 bytes), then extents, strides in bytes, box sizes and steps, innermost "
        "dimension first and without its stride. Boxes have up to 256 elements along a dimension, with rows of a "
        "multiple of 16 bytes; strides are multiples of 16 bytes. All values must be known before the kernel starts. "
        "A kernel that is a separate function declares the static part of each map in `mlcc.tensor_maps`, and its "
        "launch passes maps of that form.",
    ),
    "E0778": (
        "a block that cannot be a bulk copy",
        "`mlcc.bulk_copy` has the copy engine do the block's copy (sm_90 and later): a box of a tensor in global "
        "memory to shared memory, dimension by dimension, without conversion, with contiguous rows. Its loops must "
        "not be bound to threads, since one thread issues the copy. Rows of the box and strides of the tensor must be "
        "multiples of 16 bytes. A condition that selects zeros otherwise marks the end of the tensor.",
    ),
    "E0750": (
        "two functions with the same C symbol",
        "Every public function `f` is exported as `PREFIX_f`, with helpers such as `PREFIX_f_ws`; characters that C "
        "identifiers cannot have become `_`. Two functions got the same symbol. Rename one, or make it private.",
    ),
    "E0751": (
        "the data of a constant are missing",
        "The text refers to a constant by name, and neither the text nor the file beside it holds its data.",
    ),
    "E0752": (
        "an argument does not match",
        "An argument of a call in the graph has another dtype, shape or kind than the function takes, or the sizes "
        "that the function needs cannot be derived from its arguments.",
    ),
    "E0753": (
        "an extent cannot be computed",
        "Shapes in native code are integer arithmetic over symbols that are known when the function is entered: "
        "extents of parameters, and scalar parameters.",
    ),
    "E0754": (
        "the graph has no native form",
        "Native functions call kernels, packed functions and other relax functions, and support tuples, branches, "
        "shapes and memory. Operators are lowered to kernels first (`lower-to-tir`, part of every -O level). "
        "Functions selected at run time, and values whose shape depends on data without a bound, have no native form.",
    ),
    "E0755": (
        "the artifact cannot be written in this form",
        "Objects need no tools. A shared library needs a C compiler that links (cc, or the one named by CC).",
    ),
    "E0756": (
        "recursive relax functions",
        "The memory of a native function is planned before it runs, so general recursion is not supported. A loop is: "
        "a function may call itself in tail position, in a branch, with arguments of the same shapes, but not on "
        "every path. Scalars and shapes must not change between iterations; pass changing values as tensors without "
        "dimensions.",
    ),
    "E0757": (
        "a shape or dtype must be known",
        "Parameters and results of a native function need a known dtype and number of dimensions; the shapes of "
        "results must follow from those of the parameters, or have a known upper bound. Every symbol must be a whole "
        "extent of some parameter, so that a caller determines its value.",
    ),
    "E0758": ("no such function", "A call in the graph names a function that the module does not have."),
    "E0780": (
        "a kernel has no form in this source language",
        "`--emit cuda-c` and `--emit metal` print kernels as source text, `-t c` writes C. Metal has no float64, "
        "neither it nor CUDA C has 8-bit floats here, and intrinsics of one vendor's GPUs have no form in the other's "
        "language. C has neither intrinsics of GPUs nor native kernels in LLVM IR: call such code by `T.call_extern` "
        "with --allow-extern, or by `T.call_packed`.",
    ),
    "E0781": (
        "an unknown source language",
        "Kernels can be printed as `cuda-c` and as `metal`.",
    ),
    "E0790": (
        "invalid target text",
        "A target is written `llvm`, `llvm{cpu=native}` or `cuda{arch=sm_90}`: a name, and options in braces "
        'separated by spaces or commas. TVM\'s forms `llvm -mcpu=skylake -num-cores 2` and {"kind": "llvm"} are '
        "accepted, too.",
    ),
    "E0791": (
        "unknown target",
        "The targets are `llvm` (CPUs), `cuda` (NVIDIA GPUs), and those that installed packages provide.",
    ),
    "E0792": (
        "unknown target option",
        "`llvm` has cpu, triple, features and num-cores; `cuda` has arch and fast-math. TVM's mcpu, mtriple and mattr "
        "mean cpu, triple and features.",
    ),
    "E0793": (
        "invalid value of a target option",
        "cpu, triple and arch are single words (`native`, `aarch64-linux-gnu`, `sm_90`), features a list of LLVM's "
        'names each with its sign, as in `["+avx2", "-fma"]` or `+avx2`; num-cores 0 is all cores of the machine.',
    ),
    "E0794": (
        "a target of another kind",
        "The request needs a particular kind of target, for example a GPU, and the given target is of another kind.",
    ),
}
