"""Rule-based schedules: chosen by analysis of the kernel and the facts of the target, without measurements.

`kernel` is the view that a rule has of a function. `rules` is the table of rules in the order in which they are tried,
and `choose` tries them. A rule is a file with one function; docs/auto-schedule.md describes how to write one.
"""
