"""The intermediate representation. `tir` and `relax` hold the nodes; import those modules and qualify the names."""

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, Node, children, map_children, replace, walk

__all__ = ["Attrs", "DType", "IRModule", "Node", "children", "map_children", "relax", "replace", "tir", "walk"]
