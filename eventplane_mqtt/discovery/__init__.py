"""The home's broker: where Mosquitto's profile leads, and how DNS-SD announces and finds it.

A build may leave this part out (`edge.parts`). Here are its errors.
"""

from __future__ import annotations

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
    """No listener of the profile accepts us; the `problem` has a reason for each."""


class InterfaceError(DiscoveryError):
    """The network interface `subject` does not lead to a home's network."""


class UnreachableError(DiscoveryError):
    """No listener of the profile `subject` can be reached from the home."""


class MulticastDnsError(DiscoveryError):
    """Multicast DNS refuses an announcement on the interface `subject`."""


class LibraryMissingError(DiscoveryError):
    """The library for DNS-SD is not installed, or too old."""

    subject: str = "DNS-SD"
    problem: str = "the Python package zeroconf, version 0.131 or later, is missing"
    remedy: str = "install python3-zeroconf, or pip install zeroconf"
