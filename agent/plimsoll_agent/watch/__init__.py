"""Watches a long run for memory that goes wrong, while it trains.

    trend     whether memory at the ends of steps rises, and goes on rising
    bounds    containers that have a largest length
    holes     the largest free block of reserved memory
    device    one device: its free memory, other processes on it, what grows on it
    trackers  sends numbers to W&B, MLflow and TensorBoard, where the script uses them
    watcher   all devices, step by step; each alarm once
    watching  starts a watcher and ends it; at most one at a time
    status    the file in which other processes see this run

At the end of each step it reads counters that the allocator has anyway, and asks the driver at most once a second. Only where
memory grows it looks further, once: for the line whose memory stays allocated.
"""

from __future__ import annotations
