"""Operators that a tensor compiler cannot support, with the reason reported for each."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported

RANDOM = "random numbers are not supported"
STRINGS = "strings are not supported"
TRAINING = "training operators are not supported"
TREES = "classic machine learning is not supported"

_REASONS = {
    RANDOM: ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    STRINGS: ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    "decoding compressed images is not supported": ("ImageDecoder",),
}
_DOMAINS = {
    ("ai.onnx.ml", TREES): (
        "ArrayFeatureExtractor", "Binarizer", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "Imputer",
        "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier",
        "SVMRegressor", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "ZipMap",
    ),
    ("ai.onnx.preview.training", TRAINING): ("Adagrad", "Adam", "Gradient", "Momentum"),
}  # fmt: skip


def _refuse(reason: str, help: str, domain: str, *operators: str) -> None:
    """Register a converter that raises the reason."""

    @converts(*operators, domain=domain)
    def convert(t: OnnxTranslator, node: OnnxNode, *inputs: Any) -> Any:
        raise Unsupported(reason, help)


for _reason, _operators in _REASONS.items():
    _refuse(_reason, "do this outside the model, and pass the result as an input", "", *_operators)
for (_domain, _reason), _operators in _DOMAINS.items():
    _refuse(_reason, "export only the neural network of the model", _domain, *_operators)
