"""Cost models of candidates, under TVM's names."""

from mlcc.tune.cost_model.cost_model import CostModel
from mlcc.tune.cost_model.features import DecisionFeatures
from mlcc.tune.cost_model.models import BoostedTrees, FrozenModel, NearestModel, RandomModel, best_installed

PyCostModel = CostModel  # TVM's base of models that are written in Python
XGBModel = best_installed

__all__ = [
    "BoostedTrees", "CostModel", "DecisionFeatures", "NearestModel", "PyCostModel", "RandomModel", "FrozenModel",
    "XGBModel", "best_installed",
]  # fmt: skip
