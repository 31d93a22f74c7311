"""Why a broker cannot be found, or not be announced."""

from __future__ import annotations

from collections.abc import Sequence

from edge.errors import EdgeError


class DiscoveryError(EdgeError):
    """Base: what is wrong with the `subject`, and the `remedy`."""

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        super().__init__(f"{subject}: {problem}; {remedy}")
        self.subject = subject
        self.problem = problem
        self.remedy = remedy


class ProfileError(DiscoveryError):
    """Mosquitto's profile cannot be read; `subject` is the file, with the line where there is one."""


class NoListenerError(DiscoveryError):
    """No listener of the profile takes us: `reasons` says why not, one for each."""

    def __init__(self, subject: str, reasons: Sequence[str]) -> None:
        super().__init__(subject, "; ".join(reasons), "add the line `listener 1883 127.0.0.1`")
        self.reasons = tuple(reasons)


class InterfaceError(DiscoveryError):
    """A network interface, the `subject`, is none to announce a broker on."""


class UnreachableError(DiscoveryError):
    """Nobody in the home reaches the broker of the profile, the `subject`."""


class MulticastDnsError(DiscoveryError):
    """Multicast DNS refuses what is to be announced on an interface, the `subject`."""

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(subject, f"multicast DNS: {problem}", "see who else announces there; tried again")


class LibraryMissingError(DiscoveryError):
    """What announcing and finding take is not installed, or too old."""

    def __init__(self) -> None:
        problem = "there is no zeroconf of version 0.131 or later among Python's packages"
        super().__init__("DNS-SD", problem, "install python3-zeroconf")
