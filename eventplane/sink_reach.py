"""Where the endpoints may be that events are posted to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.settings import Settings, SettingsError, variable_of

HTTPS_PORT: Final = 443
MAX_PORT: Final = 65_535


class Scope(StrEnum):
    """Nowhere if nobody in the contract posts to endpoints, anywhere if the cloud is emulated."""

    NOWHERE = "nowhere"
    INTERNET = "internet"
    ANYWHERE = "anywhere"


@dataclass(frozen=True)
class SinkReach(Settings):
    """Where endpoints may be: within the scope `sinks`, and on the internet at one of `sink_ports`."""

    sinks: Scope
    sink_ports: tuple[int, ...] = (HTTPS_PORT,)

    def __post_init__(self) -> None:
        if not all(0 < each <= MAX_PORT for each in self.sink_ports):
            raise SettingsError(variable_of("sink_ports"), f"is malformed (ports are 1 to {MAX_PORT})")

    def url_problem(self, url: str) -> str | None:
        """Why events may not be posted to `url`, or None."""
        # Late: the tables of networks take 30 ms, and most functions, which read settings, post nowhere.
        from eventplane import webhook_url

        return webhook_url.url_problem(url, is_emulated=self.sinks is Scope.ANYWHERE, ports=self.sink_ports)

    def peer_problem(self, address: str, port: int) -> str | None:
        """Why nothing may be sent to `port` of the IP `address`, or None."""
        if self.sinks is Scope.ANYWHERE:
            return None
        from eventplane import webhook_url

        problem = webhook_url.port_problem(port, self.sink_ports)
        return problem or webhook_url.address_problem(address)


ANYWHERE: Final = SinkReach(Scope.ANYWHERE)
