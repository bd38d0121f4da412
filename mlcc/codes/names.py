"""Diagnostic codes: names and scopes."""

CODES: dict[str, tuple[str, str]] = {
    "E0201": (
        "unknown name",
        "The name is bound nowhere that this place can see. Names are bound by parameters, loops, block axes, buffers, "
        'assignments, and at the module\'s level by functions and prelude lines such as `n = TypeVar("n")`.',
    ),
    "E0202": (
        "name used outside its scope",
        "The name was bound in a loop, block or function that ended before this place; the note shows where.",
    ),
    "E0250": (
        "no such function in the module",
        "A call names a function that the text does not define. Functions of the module are called as `cls.f`, by "
        "their bare name, or by their name in quotes in `R.call_dps_packed`; packed functions of the environment are "
        "named in quotes only.",
    ),
}
