"""Loading artifacts and running them. Needs only the standard library and NumPy; parts load on first use.

Written by scripts/stubs.py from what is there at run time.
"""

from mlcc.runtime.executable import Executable as Executable
from mlcc.runtime.function import Function as Function
from mlcc.runtime.dlpack import TensorView as TensorView
from mlcc.runtime.registry import get_func as get_func
from mlcc.runtime.threads import get_num_threads as get_num_threads
from mlcc.runtime.loader import load as load
from mlcc.runtime.env import load_env as load_env
from mlcc.runtime.loader import read_manifest as read_manifest
from mlcc.runtime.registry import register_func as register_func
from mlcc.runtime.threads import set_num_threads as set_num_threads
