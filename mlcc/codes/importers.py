"""E10: importing models."""

CODES = {
    "E1001": (
        "an operator cannot be imported",
        "The model has an operator that mlcc does not know how to say. The message counts its uses and names the "
        "modules they are in; all such operators of a model are listed at once, and nothing is written. A converter "
        "of your own can say it: a function in a Python file given with `--map`, or `custom_convert_map=` in Python.",
    ),
    "E1002": (
        "an operator cannot be imported as it is used",
        "mlcc knows the operator, but not with these arguments, dtypes or shapes; the message says what is in the way. "
        "Nothing is guessed: a model is imported whole or not at all.",
    ),
}
