"""Older texts, schedule scripts and databases of records in today's form: `mlcc upgrade`."""
