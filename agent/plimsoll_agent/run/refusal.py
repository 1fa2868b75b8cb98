"""What was asked for does not suit the program: the one failure of ours that is meant for the user."""


class CannotApply(RuntimeError):
    """The plan does not suit this program; the sentence says why."""
