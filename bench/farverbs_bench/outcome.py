"""What can come of a measurement besides figures."""


class Skipped(Exception):
    """This machine or this build lacks what the measurement needs; the text says what to install."""


class Failed(Exception):
    """A program that should have measured did not."""


class Refused(Exception):
    """Nothing can be measured here; the text says what to do about it."""
