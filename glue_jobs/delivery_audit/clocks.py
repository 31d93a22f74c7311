"""How far the clocks of the cloud's functions may be off, and how long a decision takes at most."""

from __future__ import annotations

from typing import Final

LONGEST_DECISION_MS: Final = 180_000
"""Longest from a message's first receive to a decision at that receive, milliseconds. For so long the
routers' queues hide a message (`stacks.function_size`); then it is received a second time."""

CLOCK_SLACK_MS: Final = 5_000
"""How far a router's clock may be behind those of IoT Core and the queue, milliseconds. Ours: AWS keeps its
clocks within far less."""
