"""The figures of the papers, run again: one file a paper."""
