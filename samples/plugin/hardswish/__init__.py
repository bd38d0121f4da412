"""A pass, an operator and a schedule rule that mlcc finds when this package is installed."""
