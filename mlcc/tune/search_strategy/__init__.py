"""Search strategies for design spaces, under TVM's names."""

from mlcc.tune.search_strategy.candidate import MeasureCandidate
from mlcc.tune.search_strategy.evolutionary_search import EvolutionarySearch
from mlcc.tune.search_strategy.local_descent import LocalDescent
from mlcc.tune.search_strategy.replay_func import ReplayFunc
from mlcc.tune.search_strategy.replay_trace import ReplayTrace
from mlcc.tune.search_strategy.strategy import SearchStrategy

PySearchStrategy = SearchStrategy  # TVM's base of strategies that are written in Python

__all__ = [
    "EvolutionarySearch", "LocalDescent", "MeasureCandidate", "PySearchStrategy", "ReplayFunc", "ReplayTrace",
    "SearchStrategy",
]  # fmt: skip
