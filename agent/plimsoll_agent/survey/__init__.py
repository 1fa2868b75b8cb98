"""What a plain run shows `plimsoll fit` before it tries a remedy.

    sites  where a person would change the script
    idle   which remedies have nothing to do in it
"""
