"""What `plimsoll calibrate` asks real cards.

    card   what a card is to PyTorch, and what its libraries want
    ranks  what NCCL takes on several cards, and how fast they reach each other
"""
