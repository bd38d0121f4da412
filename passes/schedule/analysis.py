"""The analyses that primitives ask, under one roof."""

from mlcc.passes.schedule.access import (
    allocating_block,
    defining_block,
    read_buffer,
    read_region,
    write_buffer,
    write_region,
)
from mlcc.passes.schedule.bindings import (
    Domain,
    affine_violation,
    analyzer_of,
    bindings,
    bound_vars,
    domain_above,
    is_affine_binding,
    is_affine_in,
    is_trivial_binding,
    loop_domain,
    loop_iter_kind,
    shared_by_threads,
    vars_of,
)
from mlcc.passes.schedule.checks import (
    check_affine_binding,
    check_complete_block,
    check_complete_or_reduction_block,
    check_loop_starts_at_zero,
    check_not_output,
    check_partial_affine_binding,
    check_reduction_block,
    check_single_child,
    check_stage_pipeline,
    check_subtree_compact_dataflow,
    check_trivial_binding,
    has_branch,
    loops_used,
    scope_root,
)
from mlcc.passes.schedule.conditions import (
    complete_block_violation,
    is_complete_block,
    is_dominant,
    is_reduction_block,
    kind_words,
    other_writer,
    reduce_indexed_write,
    reduction_block_violation,
)
from mlcc.passes.schedule.reducers import (
    REDUCERS,
    ReductionParts,
    apply_reducer,
    find_reducer,
    init_values_and_updates,
    reduction_parts,
)
from mlcc.passes.schedule.region_cover import (
    consumed_region,
    covers,
    is_stage_pipeline,
    meeting_place,
    produced_region,
    region_cover,
    region_cover_violation,
    relaxed_lower,
    relaxed_upper,
    spell,
    stage_pipeline_violation,
    unbound,
)
from mlcc.passes.schedule.scope import (
    Dep,
    DepKind,
    ScopeInfo,
    consumers,
    is_output,
    output_blocks,
    outside_write,
    producers,
    scope_info,
)

__all__ = [
    "REDUCERS", "Dep", "DepKind", "Domain", "ReductionParts", "ScopeInfo", "affine_violation", "allocating_block",
    "analyzer_of", "apply_reducer", "bindings", "bound_vars", "check_affine_binding", "check_complete_block",
    "check_complete_or_reduction_block", "check_loop_starts_at_zero", "check_not_output",
    "check_partial_affine_binding", "check_reduction_block", "check_single_child", "check_stage_pipeline",
    "check_subtree_compact_dataflow", "check_trivial_binding", "complete_block_violation", "consumed_region",
    "consumers", "covers", "defining_block", "domain_above", "find_reducer", "has_branch", "init_values_and_updates",
    "is_affine_binding", "is_affine_in", "is_complete_block", "is_dominant", "is_output", "is_reduction_block",
    "is_stage_pipeline", "is_trivial_binding", "kind_words", "loop_domain", "loop_iter_kind", "loops_used",
    "meeting_place", "other_writer", "output_blocks", "outside_write", "produced_region", "producers", "read_buffer",
    "read_region", "reduce_indexed_write", "reduction_block_violation", "reduction_parts", "region_cover",
    "region_cover_violation", "relaxed_lower", "relaxed_upper", "scope_info", "scope_root", "shared_by_threads",
    "spell", "stage_pipeline_violation", "unbound", "vars_of", "write_buffer", "write_region",
]  # fmt: skip
