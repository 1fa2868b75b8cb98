"""What the script would compute on a device, where nobody computes.

    phantom     what only the phantom GPU knows
    lines       a number that a line reads of the device, as the user says or as it read before
    sizes       which of them become sizes, as the script's text shows
    asked_size  that a script asked how large the card is
    ghosts      weights on the host that take no memory and no time
    draws       where a generator comes to after many draws, known from one run to the next
    detectors   what torchvision's detectors keep of scores that nobody computed
    descent     how far an optimizer goes that solves inside its step
"""
