"""The operator's commands (dead letters, one event's way, the fleet); `eventplane NOUN VERB`.

They need an AWS SDK, credentials and a clock, none of which the core may know.
"""
