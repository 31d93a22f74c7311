"""The parts: capabilities that a plane may lack, each in a folder here and its tests in tests/parts.

The core imports no part. Where a part is asked for, the core loads its modules of these names:

- `stack`: `add(plane)` adds it to the stacks of a plane (`stacks.application.PlaneStacks`);
- `settings`: the settings of its functions;
- `client`, `recorder`: what the client library and the routers use of it;
- `command`: its noun of the command line, or its verb of another noun;
- `device`: what the forwarder's commands use of it, in a build that has it;
- `broker`, `dns_sd`: what finds the broker that a link goes to.

With them comes what they import (`parts.imports`), and so no other part.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder  # importlib.util takes 0.4 MiB
from types import ModuleType
from typing import TYPE_CHECKING, Final

from eventplane.names import CANARY, DOWNLINK, MONITOR, SUBSCRIBERS

if TYPE_CHECKING:
    from eventplane.contract import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A capability that a plane may lack.

    Args:
        without: what a plane is like that lacks it, for people.
        needed_by: the participants that cannot do without it.
        inbox_key: the key of inboxes that cannot do without it.
        is_optional: whether an environment may leave it out (`Environment.parts`).
        tables: its tables, by their names before `resource_name`.
        noun: the noun of its commands, and what they do.
    """

    without: str
    needed_by: tuple[str, ...] = ()
    inbox_key: str | None = None
    is_optional: bool = False
    tables: tuple[str, ...] = ()
    noun: tuple[str, str] | None = None

    def is_needed_by(self, contract: Contract) -> bool:
        """Return whether a plane of `contract` cannot do without it."""
        if not contract.participants.keys().isdisjoint(self.needed_by):
            return True
        return self.inbox_key is not None and any(getattr(each, self.inbox_key) for each in contract.channels)


PARTS: Final = {
    "webhooks": Part(
        without="events are not posted to HTTPS endpoints",
        needed_by=(SUBSCRIBERS,),
        inbox_key="webhook",
        tables=("endpoints",),
    ),
    "subscriptions_api": Part(
        without="routes are changed by the contract and the client library alone",
        needed_by=(SUBSCRIBERS,),
        is_optional=True,
    ),
    "discovery_api": Part(without="the contract is read from its file", is_optional=True),
    "tracing": Part(without="no spans of events, in the routers and in the client library"),
    "presence": Part(
        without="no notice that a device is offline, quiet or floods",
        needed_by=(MONITOR,),
        tables=("presence",),
    ),
    "fleet": Part(
        without="devices are provisioned by hand, without `eventplane fleet` and `make smoke`; no audit is "
        "`proven`, because no list says which devices should be there",
        needed_by=(DOWNLINK,),
        is_optional=True,
        noun=("fleet", "list, register, show, group, replace, quarantine or decommission devices"),
    ),
    "probe": Part(
        without="no alarm is sent on trial every minute, so a plane that loses alarms is noticed late",
        needed_by=(CANARY,),
        noun=("smoke", "test a deployed environment with a throw-away device"),
    ),
    "provisioning": Part(without="a device's certificate is installed and renewed by other means"),
    "discovery": Part(without="the home's broker has a fixed address, and is not announced"),
    "telemetry": Part(without="a device's metrics are read at its health endpoint, not sent by OTLP"),
    "replay": Part(
        without="what was lost behind the router is not sent again",
        is_optional=True,
        noun=("replay", "send again the events that an audit reports lost, or a past window"),
    ),
    "archive_care": Part(
        without="no compaction and no erasure: raw objects stay for the archive's retention",
        is_optional=True,
    ),
    "queries": Part(without="no tables for Amazon Athena", is_optional=True),
    "simulate": Part(without="a contract is first tried when it is deployed"),
}
"""Each part by the name of its folder."""

OPTIONAL: Final = frozenset(name for name, part in PARTS.items() if part.is_optional)
"""Those that an environment may leave out."""


def has(part: str, module: str) -> bool:
    """Return whether `part` is here, and has the `module`."""
    return PathFinder.find_spec(module, [f"{each}/{part}" for each in __path__]) is not None


def place(part: str, module: str) -> str:
    """Return the full name of the `module` of `part`."""
    return f"{__name__}.{part}.{module}"


def load(part: str, module: str) -> ModuleType:
    """Return the `module` of `part`."""
    name = place(part, module)
    __import__(name)  # by `import_module` it would not be seen with -X importtime
    return sys.modules[name]


def commands() -> dict[str, tuple[str, str]]:
    """Return the module of each part's noun, and what its commands do."""
    nouns = ((name, *part.noun) for name, part in PARTS.items() if part.noun)
    return {noun: (place(name, "command"), purpose) for name, noun, purpose in nouns}
