"""The checks of tensor arguments that need no symbols: one loop over the rows of `mlcc.targets.plan.tensor_rows`."""

from __future__ import annotations

from mlcc.runtime.abi import CPU, CUDA_HOST, OFFSET
from mlcc.targets.plan.tensor_rows import ANY, CODE_AT, DIMENSIONS_AT, NOT_NEGATIVE

HELPER = "mlcc_check_tensors"
RANGE = "{ i64, i64 }"  # the addresses of a tensor's first byte and of the one after its last; 0 and 0 if it has none


def _field(name: str, type: str) -> str:
    """Read a field of the DLTensor `%tensor` into `%NAME`."""
    at = f"  %{name}.p = getelementptr inbounds i8, ptr %tensor, i64 {OFFSET[name]}\n"
    return f"{at}  %{name} = load {type}, ptr %{name}.p, align {4 if type == 'i32' else 8}"


def _column(name: str, index: int) -> str:
    """Read a field of the row `%row` into `%NAME`."""
    return f"  %{name}.p = getelementptr inbounds i64, ptr %row, i64 {index}\n  %{name} = load i64, ptr %{name}.p"


TEXT = f"""define internal i32 @{HELPER}(ptr %args, i64 %count, ptr %table, ptr %ranges) noinline nounwind {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %good ]
  %row = phi ptr [ %table, %entry ], [ %row.next, %good ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %cell = getelementptr inbounds ptr, ptr %args, i64 %i
  %tensor = load ptr, ptr %cell
  %is.null = icmp eq ptr %tensor, null
  br i1 %is.null, label %failed, label %present
present:
{_column("want.ndim", 0)}
{_field("ndim", "i32")}
  %ndim.wide = sext i32 %ndim to i64
  %ndim.good = icmp eq i64 %ndim.wide, %want.ndim
  br i1 %ndim.good, label %look.dtype, label %failed
look.dtype:
{_column("want.dtype", 1)}
{_field("dtype", "i32")}
  %dtype.wide = zext i32 %dtype to i64
  %dtype.good = icmp eq i64 %dtype.wide, %want.dtype
  br i1 %dtype.good, label %look.device, label %failed
look.device:
{_field("device_type", "i32")}
  %on.cpu = icmp eq i32 %device_type, {CPU}
  %on.host = icmp eq i32 %device_type, {CUDA_HOST}
  %device.good = or i1 %on.cpu, %on.host
  br i1 %device.good, label %look.shape, label %failed
look.shape:
{_field("shape", "ptr")}
  %no.shape = icmp eq ptr %shape, null
  %some.dims = icmp ne i64 %want.ndim, 0
  %shape.bad = and i1 %no.shape, %some.dims
  br i1 %shape.bad, label %failed, label %dims
dims:
  %d = phi i64 [ 0, %look.shape ], [ %d.next, %dim.done ]
  %empty = phi i1 [ false, %look.shape ], [ %empty.next, %dim.done ]
  %dims.left = icmp ult i64 %d, %want.ndim
  br i1 %dims.left, label %dim, label %look.data
dim:
  %extent.p = getelementptr inbounds i64, ptr %shape, i64 %d
  %extent = load i64, ptr %extent.p
  %d.twice = shl i64 %d, 1
  %want.at = add i64 %d.twice, {DIMENSIONS_AT}
  %want.p = getelementptr inbounds i64, ptr %row, i64 %want.at
  %want = load i64, ptr %want.p
  %code.at = add i64 %want.at, 1
  %any = icmp eq i64 %want, {ANY}
  %binds = icmp eq i64 %want, {NOT_NEGATIVE}
  %not.negative = icmp sge i64 %extent, 0
  %same = icmp eq i64 %extent, %want
  %as.bound = select i1 %binds, i1 %not.negative, i1 %same
  %dim.good = select i1 %any, i1 true, i1 %as.bound
  br i1 %dim.good, label %dim.done, label %failed
dim.done:
  %is.zero = icmp eq i64 %extent, 0
  %empty.next = or i1 %empty, %is.zero
  %d.next = add i64 %d, 1
  br label %dims
look.data:
{_field("data", "ptr")}
  %has.data = icmp ne ptr %data, null
  %data.good = or i1 %empty, %has.data
  br i1 %data.good, label %look.align, label %failed
look.align:
{_field("byte_offset", "i64")}
  %address = ptrtoint ptr %data to i64
  %first = add i64 %address, %byte_offset
{_column("mask", 3)}
  %low = and i64 %first, %mask
  %is.aligned = icmp eq i64 %low, 0
  %align.good = or i1 %empty, %is.aligned
  br i1 %align.good, label %look.strides, label %failed
look.strides:
{_field("strides", "ptr")}
{_column("compact", 4)}
  %given = icmp ne ptr %strides, null
  %must = icmp ne i64 %compact, 0
  %compare = and i1 %given, %must
  br label %back
back:
  %k = phi i64 [ %want.ndim, %look.strides ], [ %k.next, %backed ]
  %step = phi i64 [ 1, %look.strides ], [ %step.next, %backed ]
  %fine = phi i1 [ true, %look.strides ], [ %fine.next, %backed ]
  %k.left = icmp ne i64 %k, 0
  br i1 %k.left, label %axis, label %look.fine
axis:
  %k.next = sub i64 %k, 1
  %size.p = getelementptr inbounds i64, ptr %shape, i64 %k.next
  %size = load i64, ptr %size.p
  %step.next = mul i64 %step, %size
  br i1 %compare, label %stride, label %backed
stride:
  %stride.p = getelementptr inbounds i64, ptr %strides, i64 %k.next
  %stride.value = load i64, ptr %stride.p
  %as.packed = icmp eq i64 %stride.value, %step
  %unit = icmp eq i64 %size, 1
  %axis.good = or i1 %as.packed, %unit
  %both = and i1 %fine, %axis.good
  br label %backed
backed:
  %fine.next = phi i1 [ %fine, %axis ], [ %both, %stride ]
  br label %back
look.fine:
  %strides.good = or i1 %fine, %empty
  br i1 %strides.good, label %good, label %failed
good:
{_column("width", 2)}
  %bytes = mul i64 %step, %width
  %last = add i64 %first, %bytes
  %start = select i1 %empty, i64 0, i64 %first
  %end = select i1 %empty, i64 0, i64 %last
  %start.p = getelementptr inbounds {RANGE}, ptr %ranges, i64 %i
  store i64 %start, ptr %start.p
  %end.p = getelementptr inbounds {RANGE}, ptr %start.p, i64 0, i32 1
  store i64 %end, ptr %end.p
  %dims.twice = shl i64 %want.ndim, 1
  %length = add i64 %dims.twice, {DIMENSIONS_AT}
  %row.next = getelementptr inbounds i64, ptr %row, i64 %length
  %i.next = add i64 %i, 1
  br label %head
failed:
  %at = phi i64 [ {CODE_AT["null"]}, %one ], [ {CODE_AT["ndim"]}, %present ], [ {CODE_AT["dtype"]}, %look.dtype ],
    [ {CODE_AT["device"]}, %look.device ], [ {CODE_AT["shape"]}, %look.shape ], [ %code.at, %dim ],
    [ {CODE_AT["data"]}, %look.data ], [ {CODE_AT["align"]}, %look.align ], [ {CODE_AT["strides"]}, %look.fine ]
  %code.p = getelementptr inbounds i64, ptr %row, i64 %at
  %code = load i64, ptr %code.p
  %result = trunc i64 %code to i32
  ret i32 %result
done:
  ret i32 0
}}"""
