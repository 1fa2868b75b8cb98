"""Watches a long run for memory that goes wrong, while it trains.

    trend     does what lives at the ends of steps rise, and go on rising?
    bounds    containers that will be full
    holes     the largest free piece of what is reserved
    device    one device: its room, its neighbours, what grows on it
    trackers  what W&B, MLflow and TensorBoard get, where the script uses them
    watcher   all devices, step by step; each alarm once
    watching  starts a watcher and ends it; at most one at a time
    status    the file by which others see this run

It reads counters of the allocator that are kept anyway, at the end of each step, and asks the driver at most once a
second. Only where something grows is more looked at, once: the line that keeps it.
"""

from __future__ import annotations
