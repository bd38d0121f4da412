"""Diagnostic codes: passes."""

CODES: dict[str, tuple[str, str]] = {
    "W0501": (
        "a pass had nothing to work on",
        "The pass changed nothing, because nothing of the kind that it works on is in the module. Graph passes work on "
        "relax functions, many of them on operators, which `lower-to-tir` replaces by calls. `fuse-tir` works on what "
        "`fuse` grouped; schedules and the steps of lowering work on TensorIR functions, which `lower-to-tir` makes. "
        "Put the passes into another order, or add the missing one.",
    ),
    "W0502": (
        "an option about a pass that does not run",
        "`--dump-before` and `--dump-after` name a pass that the pipeline does not have: nothing is shown. "
        "`--print-pipeline` shows which passes run.",
    ),
    "W0503": (
        "a schedule rule from outside failed",
        "A rule of a loaded file or an installed package raised an exception at the place that is shown. The kernel "
        "went to the next rule. A rule that does not apply calls `not_applicable`.",
    ),
    "E0500": (
        "a pipeline's text cannot be read",
        "A pipeline is a list of passes separated by commas, each with options in braces: "
        "`bind-params{params=w.npz},fuse,lower-to-tir`. A value is a word, a number, a string in double quotes, or a "
        "JSON list or map. In a shell the whole stands in single quotes.",
    ),
    "E0501": (
        "no such pass",
        "`mlcc passes --list` names the passes, `mlcc passes --help-pass NAME` explains one.",
    ),
    "E0502": (
        "the pass has no such option",
        "`mlcc passes --help-pass NAME` lists the options of a pass. `-` and `_` are the same in their names.",
    ),
    "E0503": (
        "an option of a pass has a wrong value",
        "The option takes a value of another type, such as a list of strings or an integer.",
    ),
    "E0504": (
        "a pass lacks an option",
        "The pass cannot do anything without that option; its help says what it means.",
    ),
    "E0505": (
        "a pass needs another one before it",
        "Some passes work on what an earlier one leaves: `fuse-tir`, for example, joins the TIR calls inside fused "
        "functions, and `lower-to-tir` turns operators into such calls.",
    ),
    "E0506": (
        "a pass names a function that the module does not have",
        "The option that names a function (`func`, `entry`) has a name that no function of the module has there "
        "of the pipeline. An earlier pass may have removed it.",
    ),
    "E0507": (
        "an array does not fit the parameter it is to be bound to",
        "`bind-params` takes arrays by parameter name. The file has a name that no parameter has, or an array whose "
        "dtype or shape is not the parameter's. A symbolic size takes the array's; two arrays must agree on it.",
    ),
    "E0508": (
        "a symbolic variable cannot be bound",
        "`bind-symbolic-vars` takes sizes by the names of symbolic variables. The function has none of that name, "
        "or several, or the size is negative.",
    ),
    "E0509": (
        "something cannot be lowered",
        "Code is made for TIR functions and what calls them. The operators listed have no lowering yet, or their "
        "shapes are not known well enough. Each is listed once, with its first place and how often it occurs.",
    ),
    "E0510": (
        "a file that a pipeline in a text names lies outside its folder",
        "A pipeline written in a text (`# PASSES: ...`) may only name files under the folder of that text. Give the "
        "pipeline on the command line instead: `mlcc passes FILE -p ...`.",
    ),
    "E0511": (
        "a pass changed what the module computes",
        "`--check-each` runs the module after every pass and compares with the results before the first one. "
        "The pass named is the first whose results differ by more than the tolerance.",
    ),
    "E0512": (
        "`--check-each` cannot run the module",
        "The function to run must be in the module before and after every pass, and every parameter needs an array of "
        "its name in the file.",
    ),
    "E0513": (
        "the result would be too large",
        "Every call is replaced by the body of what it calls. Functions that each call the next one several times make "
        "a result that grows by that factor with every level.",
    ),
    "E0514": (
        "a layout cannot be converted to",
        "`convert-layout` takes layouts by operator: for convolutions those of the data, the weight and, perhaps, the "
        "result, for `image.resize2d` and `image.resize3d` one. Each orders the letters of the operator's own layout, "
        "such as NHWC for NCHW. All other operators follow.",
    ),
    "E0515": (
        "a pass names a parameter that no function has",
        "`to-mixed-precision{fp16-input-names=[...]}` names parameters of relax functions that callers will give as "
        "float16 arrays.",
    ),
    "E0540": (
        "a rule file is not made of rules",
        "A rule is a pair of relax functions NAME_before and NAME_after (or NAME_pattern and NAME_replacement, or the "
        "bare words); for `fuse-by-pattern` the first of them, or a function with the attribute `Composite`. What is "
        "special about a rule is said in attributes of the first function: `commutative`, `any_attrs`, `Composite`.",
    ),
    "E0541": (
        "the two sides of a rule have different signatures",
        "What a rule makes takes the place of what it finds: the functions before and after have the same parameters, "
        "in order, with the same struct info, and the one after says at least as much of its result.",
    ),
    "E0542": (
        "a function cannot be a rule",
        "A pattern is a line of operations from its parameters to its results: no branches, no functions inside, no "
        "`R.match_cast`, no effects, and nothing that does not lead to a result.",
    ),
    "E0543": (
        "rules do not come to an end",
        "`rewrite` applies its rules until none fits. A rule whose result fits it again, or two that undo each other, "
        "never end; `limit` is the number of rounds after which that is taken to be so.",
    ),
    "E0544": (
        "a function cannot take the place of another",
        "`update-func` takes the function of that name from the file, or the only one it has. If other functions call "
        "it, it must be of the same kind and have the same parameters and result.",
    ),
    "E0517": (
        "there is no result to compare with",
        "`mlcc bisect` first runs the program as it is given: interpreted, or compiled without optimization if that "
        "takes long. If this crashes or takes too long, passes cannot be judged by it: give smaller sizes (`--size`), "
        "or reduce the crash (`mlcc reduce --keep crash`).",
    ),
    "E0518": (
        "the program does not fail as it is to",
        "`mlcc reduce` runs a program before it reduces it, and compares what happens with what `--keep` names: a "
        "crash of mlcc, results that differ from those of the interpreter, or the code of an error. Another target, "
        "level or pipeline than that of the failing command may make the difference; `--keep` also takes the command "
        "itself. `mlcc bisect --reduce` needs a failure that random arrays show, or those of `--in`.",
    ),
    "E0516": (
        "a lifted function's name is taken",
        "An inner function with the attribute `global_symbol` keeps that name when `lambda-lift` moves it out. The "
        "module must not have another function of the name.",
    ),
    "E0545": (
        "a step of lowering out of turn",
        "Lowering is a list of passes that build on one another: `mlcc passes --list` has them in order, `-p lower` "
        "runs them all. A module says in its attributes how far it is: `mlcc.stage` is the form that its functions "
        "have, `mlcc.step` the last step, `mlcc.target` for what. Each step runs once, right behind the one before it "
        "in the list: code without one of them may compute something else. Code whose accesses are checked goes "
        "through the steps of `-p sanitize`, and says so (`mlcc.sanitized`). Attributes that contradict each other or "
        "the module are refused as well.",
    ),
    "E0546": (
        "a step of lowering towards another target",
        "Code for CPUs and for GPUs is lowered by different steps. Name the target (`-t cuda`) also where the steps "
        "are run one by one, and start from the blocks for another one.",
    ),
    "E0547": (
        "no schedules are chosen for the target",
        "The rules of `auto-schedule` go by facts about a CPU or a GPU; a backend that names neither has none. Leave "
        "the pass out, or apply schedules of your own (`schedule{script=...}`).",
    ),
    "E0550": (
        "a Python file that cannot be loaded",
        "`--load FILE` runs a Python file that defines passes, or registers operators and schedule rules "
        "(docs/adding-a-pass.md). It is not valid Python, it failed at the place that is shown, or a pass in it is not "
        "complete: a frozen dataclass, a subclass of `mlcc.passes.Pass`, with a `name`, a method `run`, and options of "
        "types that a pipeline can give. Nothing of it is then registered.",
    ),
    "E0551": (
        "a name that is taken",
        "A pass, an operator or a schedule rule from outside has the name of one that mlcc has, or that another file "
        "or package has. It never takes its place: rename it.",
    ),
    "E0552": (
        "an entry point that cannot be used",
        "An installed package names passes (`mlcc.passes`), operators (`mlcc.operators`) and schedule rules "
        "(`mlcc.schedule_rules`) as entry points. Importing what it names failed, or that is no pass, operator or "
        "rule, or has another name than the entry point. Mend the package, or uninstall it.",
    ),
    "E0553": (
        "an exception of code from outside",
        "A pass, an operator or a rule of a loaded file or an installed package raised an exception at the place that "
        "is shown, or returned what is none of a pass. `MLCC_TRACEBACK=1` shows Python's traceback.",
    ),
    "E0548": (
        "weights that cannot be quantized as asked",
        "`quantize-weights` divides each weight by the scale of its group, a number of the dtype `scale`: infinities "
        "and NaN have none, and scales above 65504 are none of float16 (`scale=float32` takes them). Groups are even "
        "numbers of rows, as two integers of 4 bits share a byte.",
    ),
}
