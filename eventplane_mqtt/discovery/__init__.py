"""The home's broker: where Mosquitto's profile leads, and how DNS-SD announces and finds it.

A build may leave this part out (`edge.parts`). Here are its errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventplane_mqtt.endpoint import MqttError


class DiscoveryError(MqttError):
    """Base: the `problem` of the `subject`, and the `remedy`."""

    subject: str
    problem: str
    remedy: str
    message = "{subject}: {problem}; {remedy}"


class ProfileError(DiscoveryError):
    """Mosquitto's profile cannot be read; `subject` is the file, with the line if there is one."""


class NoListenerError(DiscoveryError):
    """No listener of the profile accepts us; `reasons` has one entry for each."""

    def __init__(self, subject: str, reasons: Sequence[str]) -> None:
        super().__init__(subject, "; ".join(reasons), "add the line `listener 1883 127.0.0.1`")
        self.reasons = tuple(reasons)


class InterfaceError(DiscoveryError):
    """The network interface `subject` does not lead to a home's network."""


class UnreachableError(DiscoveryError):
    """No listener of the profile `subject` can be reached from the home."""


class MulticastDnsError(DiscoveryError):
    """Multicast DNS refuses an announcement on the interface `subject`."""

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(subject, f"multicast DNS: {problem}", "check what else is announced there")


class LibraryMissingError(DiscoveryError):
    """The library for DNS-SD is not installed, or too old."""

    def __init__(self) -> None:
        problem = "the Python package zeroconf, version 0.131 or later, is missing"
        super().__init__("DNS-SD", problem, "install python3-zeroconf, or pip install zeroconf")
