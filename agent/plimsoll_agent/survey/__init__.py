"""What a plain run shows `plimsoll fit` before it tries a remedy, and what a card shows `plimsoll calibrate`.

    sites  where a person would change the script
    frameworks  which switches of its framework it has
    idle   which remedies have nothing to do in it
    card   what a card is to PyTorch, and what its libraries want
    ranks  what NCCL takes on several cards, and how fast they reach each other
"""

from __future__ import annotations
