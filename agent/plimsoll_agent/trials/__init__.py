"""Makes the runs of a search faster, with the same memory.

    batches    reuses batches that workers of a loader made in an earlier run
    unhurried  workers of a loader make no batch ahead
    autotune   which kernels Inductor tries where nothing can be timed
"""
