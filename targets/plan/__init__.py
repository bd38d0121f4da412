"""A graph function as steps over memory that is planned ahead, for any target, and what its manifest says."""
