"""Rules that generate design spaces of a kernel, block by block, under TVM's names."""

from mlcc.tune.schedule_rule.add_rfactor import AddRFactor
from mlcc.tune.schedule_rule.apply_custom_rule import ApplyCustomRule, register_custom_rule
from mlcc.tune.schedule_rule.auto_bind import AutoBind
from mlcc.tune.schedule_rule.auto_inline import AutoInline, InlineConstantScalars
from mlcc.tune.schedule_rule.cross_thread_reduction import CrossThreadReduction
from mlcc.tune.schedule_rule.multi_level_tiling import MultiLevelTiling, ReuseType
from mlcc.tune.schedule_rule.multi_level_tiling_tensor_core import MultiLevelTilingTensorCore
from mlcc.tune.schedule_rule.multi_level_tiling_with_intrin import MultiLevelTilingWithIntrin
from mlcc.tune.schedule_rule.parallel_vectorize_unroll import ParallelizeVectorizeUnroll
from mlcc.tune.schedule_rule.random_compute_location import RandomComputeLocation
from mlcc.tune.schedule_rule.rule import ScheduleRule

PyScheduleRule = ScheduleRule  # TVM's base of rules that are written in Python

__all__ = [
    "AddRFactor", "ApplyCustomRule", "AutoBind", "AutoInline", "CrossThreadReduction", "InlineConstantScalars",
    "MultiLevelTiling", "MultiLevelTilingTensorCore", "MultiLevelTilingWithIntrin", "ParallelizeVectorizeUnroll",
    "PyScheduleRule", "RandomComputeLocation", "ReuseType", "ScheduleRule", "register_custom_rule",
]  # fmt: skip
