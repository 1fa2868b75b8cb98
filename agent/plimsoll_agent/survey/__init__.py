"""Facts of an unchanged run that `plimsoll fit` needs before it tries a remedy.

    sites       the lines of the script that a person would change
    frameworks  the switches of its framework that it sets
    idle        the remedies that would change nothing in it
"""
