"""The one base of every named error of the plane."""


class EventPlaneError(Exception):
    """Base of all named errors. A message says what is wrong and what to do about it."""
