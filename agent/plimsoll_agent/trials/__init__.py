"""Runs of a search take less time, and the same memory.

    batches    what workers of a loader made in one run, for those of the next
    unhurried  workers of a loader that make no batch ahead
    autotune   what Inductor tries where no time passes
"""
