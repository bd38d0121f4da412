"""The primitives of schedules, by families; `registry` has the table of them."""
