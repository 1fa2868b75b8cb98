"""What a plain run shows `plimsoll fit` before it tries a remedy.

    sites       where a person would change the script
    frameworks  which switches of its framework it has
    idle        which remedies have nothing to do in it
"""
