"""mlcc: a compiler driver for tensor programs written as text.

Written by scripts/stubs.py from what is there at run time.
"""

from mlcc import frontend as frontend
from mlcc import ir as ir
from mlcc import lang as lang
from mlcc import relax as relax
from mlcc import runtime as runtime
from mlcc import te as te
from mlcc import tune as tune
from mlcc.errors import CallError as CallError
from mlcc.errors import CompileError as CompileError
from mlcc.errors import LoadError as LoadError
from mlcc.errors import MachineError as MachineError
from mlcc.errors import MlccError as MlccError
from mlcc.targets.artifact import Artifact as Artifact
from mlcc.runtime.executable import Executable as Executable
from mlcc.ir.module import IRModule as IRModule
from mlcc.passes.manage.manager import Pipeline as Pipeline
from mlcc.machine.target import Target as Target
from mlcc.ir.equal import assert_structural_equal as assert_structural_equal
from mlcc.ir.equal import structural_equal as structural_equal
from mlcc.grammar.parser import parse as parse
from mlcc.grammar.printer.printer import script as script
from mlcc.driver import run_passes as run_passes
from mlcc.driver import build as build
from mlcc.verify import lint as lint
from mlcc.loading import load as load
from mlcc.array_files import load_arrays as load_arrays
from mlcc.array_files import save_arrays as save_arrays
from mlcc.call_by_name import arguments_by_name as arguments_by_name
from mlcc.passes.schedule.mls.run import apply_schedule as apply_schedule
from mlcc.passes.schedule.schedule import Schedule as Schedule
from mlcc.runtime.threads import get_num_threads as get_num_threads
from mlcc.runtime.threads import set_num_threads as set_num_threads
from mlcc.runtime.registry import register_func as register_func
from mlcc.passes.schedule.tensor_intrin import register_tensor_intrin as register_tensor_intrin

__version__: str
