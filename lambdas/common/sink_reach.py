"""Where the endpoints may be that events are posted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.settings import SettingsError
from eventplane.webhook_url import HTTPS_PORT, MAX_PORT, address_problem, port_problem, url_problem
from eventplane.whole_numbers import whole_number
from lambdas.common.settings import text

VARIABLE: Final = "EVENTPLANE_SINKS"
PORTS_VARIABLE: Final = "EVENTPLANE_SINK_PORTS"


class Scope(StrEnum):
    """Nowhere where the contract has nobody who posts to them, anywhere where the cloud is emulated."""

    NOWHERE = "nowhere"
    INTERNET = "internet"
    ANYWHERE = "anywhere"


@dataclass(frozen=True, slots=True)
class SinkReach:
    """Endpoints are within `scope`; on the internet they have one of `ports`."""

    scope: Scope
    ports: frozenset[int] = frozenset({HTTPS_PORT})

    def url_problem(self, url: str) -> str | None:
        """Why events may not be posted to `url`, or None."""
        return url_problem(url, is_emulated=self.scope is Scope.ANYWHERE, ports=self.ports)

    def peer_problem(self, address: str, port: int) -> str | None:
        """Why nothing may be sent to `port` of the IP `address`, or None."""
        if self.scope is Scope.ANYWHERE:
            return None
        return port_problem(port, self.ports) or address_problem(address)


ANYWHERE: Final = SinkReach(Scope.ANYWHERE)


def read_sink_reach(environment: Mapping[str, str]) -> SinkReach:
    """What `environment` says. Raises `SettingsError`."""
    try:
        scope = Scope(text(environment, VARIABLE))
    except ValueError:
        raise SettingsError(VARIABLE, f"is none of {', '.join(Scope)}") from None
    try:
        ports = [
            whole_number(each, MAX_PORT, 1)
            for each in environment.get(PORTS_VARIABLE, str(HTTPS_PORT)).split(",")
        ]
    except ValueError as error:
        raise SettingsError(PORTS_VARIABLE, f"is no list of ports: {error}") from None
    return SinkReach(scope, frozenset(ports))
