"""The forwarder's figures at one moment: plain values, which any thread may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge.mailbox import LinkName
from eventplane.contract import Priority


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for one `destination` at one `priority`; `oldest_s` is the age of its oldest, seconds.

    `link` leads there; None when no route does any more.
    """

    destination: str
    priority: Priority
    link: LinkName | None
    pending: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class LinkState:
    """Whether the line to a broker stands, for how many seconds it has been so, and how often it was made.

    `complaint` is what is wrong with how the way to the broker was found.
    """

    name: LinkName
    up: bool
    for_s: float
    connects: int
    complaint: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """A snapshot. Counters without another word count since the start of the process."""

    thing: str
    contract_version: str
    uptime_s: float
    rss_bytes: int
    cpu_s: float
    """Computing time of the process, seconds."""
    epoch: str
    birth: str
    arrivals: int
    """Events stored since the epoch began."""
    used_bytes: int
    capacity_bytes: int
    capacity_deliveries: int
    pressure: float
    written_bytes: int
    backlog: tuple[Backlog, ...]
    links: Mapping[LinkName, LinkState]
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    descended: Mapping[str, int] = field(default_factory=dict)
    """What came down from the cloud: `stored`, or the reason why not."""
    discards: Mapping[tuple[str, str], int] = field(default_factory=dict)
    refused: int = 0
    """Messages that found the spool full; their senders keep them."""
    sent_unstored: int = 0
    """Deliveries of urgent ones among them that were made from memory."""
    unwanted: int = 0
    """Deliveries spared because nobody at their end handles such events."""
    publishes: int = 0
    published_events: int = 0
    published_bytes: int = 0
    acknowledged: int = 0
    acknowledge_s: float = 0.0
    """From these publishes to their acknowledgements, seconds in all."""
    slowdowns: int = 0
    in_flight: int = 0
    reloads: int = 0
    reloads_refused: int = 0
    last_reload_refused: bool = False
    certificate_left_s: float | None = None
    """Until the device's certificate expires, by the wall clock; None when that is not known."""

    @property
    def pending(self) -> int:
        """Deliveries that wait for any destination."""
        return sum(each.pending for each in self.backlog)

    def oldest_s(self, priority: Priority) -> float:
        """The age of the oldest waiting event of a priority, seconds; 0 when there is none."""
        return max((each.oldest_s for each in self.backlog if each.priority is priority), default=0.0)


def heartbeat(figures: Figures) -> dict[str, int | float | bool | str]:
    """What the device tells the cloud about its health every few minutes: flat, and small in a batch."""
    cloud, local = figures.links[LinkName.CLOUD], figures.links[LinkName.LOCAL]
    return {
        "uptime_s": round(figures.uptime_s),
        "contract": figures.contract_version,
        "pending": figures.pending,
        "oldest_urgent_s": round(figures.oldest_s(Priority.URGENT), 1),
        "oldest_normal_s": round(figures.oldest_s(Priority.NORMAL), 1),
        "arrivals": figures.arrivals,
        "refused": figures.refused,
        "dead_letters": sum(figures.dead_letters.values()),
        "discards": sum(figures.discards.values()),
        "spool_pressure": round(figures.pressure, 3),
        "written_bytes": figures.written_bytes,
        "published_events": figures.published_events,
        "published_bytes": figures.published_bytes,
        "cloud_connects": cloud.connects,
        "cloud_up_s": round(cloud.for_s) if cloud.up else 0,
        "local_connects": local.connects,
        "rss_bytes": figures.rss_bytes,
    }
