"""Who is told of what fails, how soon, and in how much detail."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eventplane.sink_reach import MAX_PORT
from eventplane.webhook_url import url_problem
from stacks.setting_error import EnvironmentSettingError

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_HTTPS: Final = "https://"


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """The alarms of an environment.

    Args:
        page_subscribers: e-mail addresses and HTTPS endpoints (a pager's) that are told at any hour: people's
            alarms are late, or may be lost. SNS asks each to confirm.
        ticket_subscribers: those who are told of what can wait for the next working day.
        urgent_age_s, age_s: how old an urgent, or another, message may become in a queue, seconds.
        is_detailed: an alarm for the age of every queue, the errors of every function and the failures of
            every rule. Otherwise the canary counts for all queues, and one alarm has the errors of all
            functions, where no person's alarm depends on them: an alarm costs $0.10 a month.
        is_canary_scheduled: whether the canary runs by itself; otherwise only when somebody invokes it.
        canary_every_min: minutes between two of the canary's alarms, 1 to 720. Each hour with a value of a
            custom metric is paid for, so an environment that nobody's safety depends on has them rarely.
        canary_late_s: seconds after which the canary's alarm counts as late, 1 to 50.
        queues_every_min: minutes between two of the canary's looks at all queues, 1 to 60.
    """

    page_subscribers: tuple[str, ...] = ()
    ticket_subscribers: tuple[str, ...] = ()
    urgent_age_s: int = 60
    age_s: int = 900
    is_detailed: bool = True
    is_canary_scheduled: bool = True
    canary_every_min: int = 1
    canary_late_s: int = 10
    queues_every_min: int = 5

    def __post_init__(self) -> None:
        for setting in ("page_subscribers", "ticket_subscribers"):
            for address in getattr(self, setting):
                if problem := _address_problem(address):
                    raise EnvironmentSettingError(f"alarms.{setting}", f"has {address!r}, which {problem}")
        for setting, most in (("canary_every_min", 720), ("canary_late_s", 50), ("queues_every_min", 60)):
            value = getattr(self, setting)
            if not 1 <= value <= most:
                raise EnvironmentSettingError(f"alarms.{setting}", f"is {value}, not within 1 to {most}")


def is_endpoint(address: str) -> bool:
    """Whether a subscriber's `address` is an HTTPS endpoint, and not an e-mail address."""
    return address.startswith(_HTTPS)


def _address_problem(address: str) -> str | None:
    if is_endpoint(address):
        return url_problem(address, is_emulated=False, ports=range(1, MAX_PORT + 1))
    return None if _EMAIL.fullmatch(address) else "is neither an e-mail address nor an https:// URL"
