"""The operator's commands: dead letters and the way of one event. `python -m eventplane` starts them by name.

They need an AWS SDK, credentials and a clock, none of which the core may know.
"""
