"""Schedules chosen by rules: what a kernel looks like and what the CPU has decide, nothing is measured.

`kernel` is what a rule sees of a function, `rules` the table of rules in the order in which they are asked, `choose`
asks them. A rule is a file with one function; docs/auto-schedule.md says how one is written.
"""
