"""Diagnostic codes: targets."""

CODES: dict[str, tuple[str, str]] = {
    "E0701": (
        "the target has no code for this",
        "The function uses something that the llvm target cannot compile: an intrinsic of another kind of device, an "
        "extern that may not be called, a dtype without machine form (4-bit integers), operands that an intrinsic "
        "does not take. The message names it. Externs besides libm's are allowed one by one: --allow-extern NAME.",
    ),
    "E0702": (
        "no such function",
        "A call names a PrimFunc that the module does not have.",
    ),
    "E0703": (
        "functions call each other in a circle",
        "A PrimFunc calls itself, directly or through others. Kernels plan their memory before they run, which a "
        "recursion makes impossible.",
    ),
    "E0704": (
        "a buffer is too large",
        "The constant dimensions or strides of a buffer come to more bytes than addresses reach, or those of a "
        "temporary to more than any machine has.",
    ),
    "E0705": (
        "unknown triple",
        "Objects are made for the systems that they are tested on. LLVM ends the process on some combinations that "
        "it does not support, so others are refused here.",
    ),
    "E0706": (
        "unknown CPU",
        "The name is not among the CPUs known for this triple. `generic` always is.",
    ),
    "E0707": (
        "threads have to run together",
        "A CPU runs loops bound to thread axes as plain loops, one iteration after the other. Code that speaks of "
        "other threads (barriers, shuffles, reductions across threads, memory shared by launched threads) would "
        "compute something else, and is refused. Schedule the function for the CPU, or compile it for a GPU.",
    ),
    "E0708": (
        "a call or access does not fit",
        "A buffer is accessed with more or fewer indices than it has dimensions, or a call of another PrimFunc gives "
        "it the wrong number of arguments, or arguments that do not tell the values of its symbolic dimensions.",
    ),
    "E0709": (
        "native code inside a program",
        "An annotation (`pragma_import_llvm`) carries LLVM IR in the text, for `T.call_extern` to call. Such code can "
        "do what you can, so the command line compiles it only with --allow-native; `mlcc.build` does unless told "
        "otherwise. C code (`pragma_import_c`) is not compiled: have clang make LLVM IR of it.",
    ),
    "E0710": (
        "native code that cannot be linked",
        "LLVM IR in a text is checked and compiled in a process of its own. It defines functions, and constants if it "
        "likes; it has no assembly code, no variables that can be written, no start-up code, sections or aliases, and "
        "calls nothing but itself, libm and allowed externs. What LLVM crashes on, or does not finish, ends here too.",
    ),
    "E0711": (
        "native code that defines a function twice",
        "Two texts of LLVM IR define one function, or one that libm, an allowed extern or a PrimFunc of the module is "
        "already.",
    ),
    "E0720": (
        "a host writes to a device's memory",
        "On a GPU everything that reads or writes tensors stands inside of loops bound to thread axes, or launch "
        "scopes; the rest runs on the host, which can allocate and launch, but not compute on tensors. Bind a loop "
        "around the statement, or let the pass `bind-threads` do so.",
    ),
    "E0721": (
        "not a thread axis of a launch",
        "Loops of GPU code are bound to blockIdx.x, .y, .z, threadIdx.x, .y, .z, or to virtual threads (vthread).",
    ),
    "E0722": (
        "how many threads a launch takes is not known before it",
        "The host computes the extents of a launch, from the sizes of the parameters. An extent that depends on loops "
        "inside the kernel counts with its greatest value; one that depends on the contents of memory has none that is "
        "known. Bind a loop of fixed extent, and take a condition inside.",
    ),
    "E0723": (
        "memory on the chip is used beyond what it lives in",
        "`local` memory is one thread's, `shared` memory one block's, and both end with the kernel. The program uses "
        "such a buffer in two kernels. Memory of scope `global` is there for all.",
    ),
    "E0724": (
        "blocks would wait for one another",
        "Code outside of loops over blocks changes memory that all blocks read. Blocks run in any order and cannot "
        "wait for one another: let the code be a loop nest of its own, which becomes a kernel that runs before.",
    ),
    "E0725": (
        "nested loops bound to one axis do not agree",
        "A loop bound to a thread axis inside of another one bound to it shares its iterations out among the same "
        "threads. Both have to have the same extent, and the inner one must not depend on the outer one's variable.",
    ),
    "E0726": (
        "a barrier that not all threads reach",
        "All threads of a block have to come to a barrier, or those that do wait for ever. One is written, or needed "
        "(a thread reads what another one wrote), under a condition or in a loop that is not the same for all of them. "
        "Move the exchange out of it, or make the condition one of the statements beside it.",
    ),
    "E0727": (
        "memory of one thread is to be read by another",
        "Memory of scope `local` exists once for each thread, in registers. Loops that are bound to threads share out "
        "what fills it, and others share out what reads it, so that a thread would read what it never wrote. Memory of "
        "scope `shared` is there for all threads of a block, `warp` for those of a warp; or let the loops of one "
        "thread do both.",
    ),
    "E0728": (
        "a reduction across threads that cannot be done",
        "A block whose reduce axes are bound to threads combines the threads' values. The reducer has to be one that "
        "is known (sum, product, minimum, maximum, and, or, argmax, argmin, or one with an identity), the block must "
        "not be decomposed, its reduce axes must not be bound to blocks, and nothing else stands between the loops "
        "and the block. `rfactor` makes two blocks of one.",
    ),
    "E0729": (
        "code that the host of a device cannot run",
        "Between launches the host computes scalars, loops and branches over them, and sets memory aside. It cannot "
        "read or write a device's memory element by element: bind the loops that do to threads.",
    ),
    "E0730": (
        "a kernel uses something that a GPU has no code for",
        "Kernels are the code of one thread of a device: they have mathematics, memory, barriers, shuffles and atomic "
        "additions, and no calls of packed functions, of other PrimFuncs, or of C. The message names what was found. "
        "A function that is a kernel already (`tir.is_global_func`) has its launch scopes around all of its code, one "
        "for each axis, and the sizes that it needs among its parameters.",
    ),
    "E0731": (
        "no code for this GPU architecture",
        "Only architectures whose code was generated and assembled in tests reach LLVM, which ends the process on "
        "others. `sm_90` runs on compute capability 9.0 and later, `sm_90a` on 9.0 only, `sm_100f` on 10.x.",
    ),
    "E0732": (
        "a kernel needs more than a GPU has",
        "A block has at most 1024 threads (64 along z) and 48 KiB of static shared memory, a thread 512 KiB of local "
        "memory, and a launch at most 4 KiB of arguments (32764 bytes from sm_100 on).",
    ),
    "E0740": (
        "a barrier that not all threads reach",
        "Found by emulation: at `T.tvm_storage_sync` some threads of the block (or of the warp) wait for others that "
        "took another way. On a GPU that hangs, or gives wrong results. The condition or loop has to be the same for "
        "all of them, or the barrier has to stand outside of it.",
    ),
    "E0741": (
        "two threads write to one place",
        "Found by emulation: two threads write different values to one element, and no barrier orders them; which one "
        "stays is left to chance. Blocks of one launch are never ordered. Writing the same value twice is no fault.",
    ),
    "E0742": (
        "a read and a write of one place in no order",
        "Found by emulation: one thread writes what another reads, and no barrier between the two says which comes "
        "first. In a loop the read of one iteration may meet the write of the next.",
    ),
    "E0743": (
        "shared memory that is read before it is written",
        "Found by emulation: no thread of the block has written the element of shared memory that is read. What is "
        "there on a GPU is left to chance.",
    ),
    "E0744": (
        "an access outside of its memory",
        "Found by emulation: an index is negative or beyond the end of a buffer in global, shared or local memory. The "
        "access is left out, and the kernel goes on.",
    ),
    "E0745": (
        "a shuffle with lanes that are not there",
        "Found by emulation: the mask of a warp shuffle names lanes that took another way. On a GPU that is undefined. "
        "`T.tvm_warp_activemask()` names those that are there.",
    ),
    "E0736": (
        "no checks in this code",
        "`--sanitize` is for code that runs on a CPU, and for texts: an artifact has checks if it was compiled with "
        "`mlcc compile --sanitize`. Code for a GPU is checked as it is emulated (`mlcc run -t cuda --emulate`).",
    ),
    "E0739": (
        "a barrier in memory that is used wrongly",
        "Found by emulation: a thread arrives at memory that is no barrier, or a phase gets more arrivals or bytes "
        "than it counts. `T.ptx_init_barrier_thread_count` says how many arrivals a phase has, and "
        "`T.ptx_arrive_barrier_expect_tx` how many bytes of bulk copies it waits for.",
    ),
    "E0746": (
        "a wait that nothing ends",
        "Found by emulation: threads wait at a barrier in memory for a phase that is not complete when all that stands "
        "before in the text has been done. Arrivals or bytes are missing, or the parity is that of the next phase. The "
        "emulation runs branches one after the other, so that a wait for what a later branch does is reported, too.",
    ),
    "E0747": (
        "a kernel that cannot be analyzed as asked",
        "`mlcc analyze` runs a function of a module for a GPU on the CPU. It needs a target that is a GPU.",
    ),
    "E0748": (
        "nothing to emulate",
        "Emulation compiles the kernels of a module for the CPU. It needs what `mlcc.build` gave for a GPU, the text "
        "of the module with `-t cuda`, or a .ptx or .mlca file that this version of mlcc wrote: it holds the text that "
        "its kernels were made of, and another version could make other kernels of it.",
    ),
    "E0749": (
        "GPU code that cannot be emulated",
        "The emulation runs a kernel's threads one after the other between the places where they meet (barriers, "
        "shuffles). A meeting inside of an expression that only some threads evaluate, or inside of the condition of "
        "a while loop, is no such place: bind its value in a statement of its own before.",
    ),
    "E0770": (
        "a loop that cannot be pipelined as asked",
        "`software_pipeline_stage` has one number for each statement of the loop's body: those of the block in it, if "
        "one block is all there is, and 3 for a pipeline inside (prologue, body, epilogue). `software_pipeline_order` "
        "names the place of each, and `software_pipeline_async_stages` lists stages. The loop is serial, with step 1.",
    ),
    "E0771": (
        "a pipeline that would turn dependences around",
        "Two parts of a pipelined loop use the same memory, and one of them writes it: the one that comes first in the "
        "loop has a lower stage, or the same stage and a lower place in the order. Memory that is allocated outside of "
        "the loop is shared by its iterations, so that a part can only run ahead of another by as many of them as "
        "their accesses are apart. A buffer that only lives in the loop can be allocated there.",
    ),
    "E0772": (
        "memory of a warp that no thread holds",
        "A buffer of scope `warp` lies in the registers of the warp's threads: a thread holds the elements whose index "
        "is `threadIdx.x` times a constant, plus less than that. It writes only these, and reads others' one at a time "
        "(by shuffles). There are 32 threads along `threadIdx.x`, or a divisor or a multiple of that. With the scope "
        "`warpgroup` it is 128 threads, or a multiple of that, and nobody reads what others hold.",
    ),
    "E0773": (
        "an intrinsic of matrices that cannot be used so",
        "The intrinsics of tensor cores (`ptx_mma`, `ptx_ldmatrix`, `mma_fill`, `mma_store`, `tvm_load_matrix_sync` "
        "and so on) take the shapes and types that the hardware has, as constants; all threads of a warp reach them.",
    ),
    "E0774": (
        "an order of elements that shared memory cannot have",
        "`permuted_layout` on a block lets pieces of 16 bytes change places within the rows of the shared memory that "
        "it uses: by the width that it says (128, 64 or 32 bytes), or by the greatest of them that divides a row, what "
        "the last index counts, if it says 1. Rows follow each other with nothing in between. Such memory is read and "
        "written by index, by `ldmatrix`, by asynchronous copies, and by what knows the order.",
    ),
    "E0776": (
        "a barrier that is not there",
        "`T.create_barriers(n)` makes barriers 0 to n - 1 of a block, in shared memory; calls name them by number, or "
        "by the address of an element of a uint64 buffer in shared memory.",
    ),
    "E0777": (
        "a tensor map that cannot be",
        "`T.tensor_map` describes a tensor in global memory to the copy engine: a type, a pointer, a rank (1 to 5) and "
        "a swizzle (0, 32, 64 or 128 bytes), then extents, strides in bytes, sizes of a box and steps, the innermost "
        "dimension first and without a stride. Boxes have up to 256 elements along a dimension, in rows of multiples "
        "of 16 bytes; strides are multiples of 16 bytes. All of it is known before the kernel starts. A kernel that "
        "stands apart says in `mlcc.tensor_maps` what is fixed of each, and its launch passes maps of that form.",
    ),
    "E0778": (
        "a block that cannot be a bulk copy",
        "`mlcc.bulk_copy` on a block has the copy engine do what it copies (sm_90 and later): a box of a tensor in "
        "global memory, to shared memory as it is, dimension by dimension, without conversion, rows one after the "
        "other. Its loops are not bound to threads, since one thread asks for all of it. Rows of the box and strides "
        "of the tensor are multiples of 16 bytes. A condition with zeros otherwise says where the tensor ends.",
    ),
    "E0750": (
        "two functions with one C symbol",
        "Every public function `f` is exported as `PREFIX_f`, with helpers such as `PREFIX_f_ws`; characters that C "
        "does not take in names become `_`. Two functions came out the same. Rename one, or make it private.",
    ),
    "E0751": (
        "the data of a constant are absent",
        "The text refers to a constant by name, and neither the text nor the file beside it holds its data.",
    ),
    "E0752": (
        "a value does not fit where it is passed",
        "An argument of a call in the graph has another dtype, shape or kind than the function takes, or the sizes "
        "that the function needs cannot be told from its arguments.",
    ),
    "E0753": (
        "an extent cannot be computed",
        "Shapes in native code are integer arithmetic over symbols that are known when the function is entered: "
        "extents of parameters, and scalar parameters.",
    ),
    "E0754": (
        "the graph has no native form here",
        "Native functions call kernels, packed functions and other relax functions, and handle tuples, branches, "
        "shapes and memory. Operators are lowered to kernels before (`lower-to-tir`, part of every -O level); "
        "functions chosen by data, and values whose shape depends on data, have no native form.",
    ),
    "E0755": (
        "the artifact cannot be written in this form",
        "Objects need nothing. A shared library needs a C compiler that links (cc, or what CC names).",
    ),
    "E0756": (
        "relax functions call each other in a circle",
        "The memory of a native function is planned before it runs, which a recursion makes impossible. A loop is "
        "possible: a function that calls itself as the last thing it does, in a branch, with arguments of the shapes "
        "that it was called with, and never in all branches. Scalars and shapes stay what they are from pass to pass; "
        "tensors without dimensions may change.",
    ),
    "E0757": (
        "a shape or dtype must be known",
        "Parameters and results of a native function have a known dtype and number of dimensions; results have "
        "shapes that follow from the parameters', or extents that the data decide below a known bound. Symbols must "
        "stand alone in some shape, so that a caller gives them values.",
    ),
    "E0758": ("no such function", "A call in the graph names a function that the module does not have."),
    "E0780": (
        "a kernel has no form in a source language",
        "`--emit cuda-c` and `--emit metal` print kernels as source text. Metal has no float64, neither language has "
        "8-bit floats here, and intrinsics of one vendor's GPUs have no form in the other's language.",
    ),
    "E0781": (
        "an unknown source language",
        "Kernels are printed as `cuda-c` and as `metal`.",
    ),
    "E0790": (
        "a target's text cannot be read",
        "A target is written `llvm`, `llvm{cpu=native}` or `cuda{arch=sm_90}`: a name, and options in braces separated "
        'by spaces or commas. TVM\'s forms `llvm -mcpu=skylake -num-cores 2` and {"kind": "llvm"} read too.',
    ),
    "E0791": (
        "no such target",
        "The targets are `llvm` (CPUs) and `cuda` (NVIDIA GPUs), and those that installed packages bring.",
    ),
    "E0792": (
        "the target has no such option",
        "`llvm` has cpu, triple, features and num-cores; `cuda` has arch and fast-math. TVM's mcpu, "
        "mtriple and mattr mean cpu, triple and features.",
    ),
    "E0793": (
        "an option of the target has a wrong value",
        "cpu, triple and arch are single words (`native`, `aarch64-linux-gnu`, `sm_90`), features a list of LLVM's "
        'names each with its sign, as in `["+avx2", "-fma"]` or `+avx2`; num-cores 0 is all of the machine.',
    ),
    "E0794": (
        "a target of another kind",
        "What was asked is about one kind of target, such as the facts of a GPU, and the target is of another. Name "
        "one of that kind.",
    ),
}
