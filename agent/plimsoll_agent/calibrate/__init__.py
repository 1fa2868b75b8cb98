"""What `plimsoll calibrate` measures on real cards.

    card   the properties of a card in PyTorch, and the workspaces of libraries
    ranks  the memory of NCCL on several cards, and the bandwidth between them
"""
