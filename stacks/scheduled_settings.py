"""What watches all devices: when it says something, and how its functions run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventplane.presence import BUCKETS
from eventplane.traffic import Quota
from stacks.function_size import FunctionSize
from stacks.setting_error import EnvironmentSettingError

_DAY_S: Final = 86_400


def _check_scheduled(setting: str, number: int, size: FunctionSize) -> None:
    """`number` functions of `size` that share the devices and are called every minute."""
    if not 1 <= number <= BUCKETS:
        raise EnvironmentSettingError(setting, f"is {number}, not within 1 to {BUCKETS}")
    if not 20 <= size.timeout_s <= 60:
        raise EnvironmentSettingError(
            setting.removesuffix("s"),
            "must have 20 s or more to end in time, and at most the minute to the next call",
        )


@dataclass(frozen=True, kw_only=True)
class PresenceSettings:
    """When something is said of a device. Seconds, but for `quiet_after_heartbeats`, which counts intervals.

    Args:
        disconnected_after_s: a device that reconnects within it was never away.
        connected_after_s: a device is back when it stayed for so long.
        quiet_after_heartbeats: without a heartbeat for so many of its intervals, a connected device is quiet.
        oldest_urgent_s, oldest_normal_s: so long an event may wait on a connected device.
        quota: a device that sends more floods.
        is_active: otherwise timers wait in their queue until somebody enables its event source mapping, and
            nobody reconciles. A run on one machine does both when it wants, so that what it expects does not
            depend on the moment at which it began.
        recorder: how the functions run that take down what is said of devices.
        timers: how the function runs that judges devices at their deadlines.
        reconciler: how the function runs that finds lost timers once a minute; no queue feeds it.
    """

    disconnected_after_s: int
    connected_after_s: int
    quiet_after_heartbeats: float
    oldest_urgent_s: int
    oldest_normal_s: int
    quota: Quota
    is_active: bool = True
    recorder: FunctionSize
    timers: FunctionSize
    reconciler: FunctionSize

    def __post_init__(self) -> None:
        for limit in ("disconnected_after_s", "connected_after_s", "oldest_urgent_s", "oldest_normal_s"):
            if not 0 < getattr(self, limit) <= _DAY_S:
                raise EnvironmentSettingError(limit, f"is {getattr(self, limit)}, not within 1 to {_DAY_S}")
        if not self.quiet_after_heartbeats > 1:
            raise EnvironmentSettingError(
                "quiet_after_heartbeats", "must be more than 1: a heartbeat may be a little late"
            )
        if self.timers.batch_window_s:
            raise EnvironmentSettingError(
                "timers", "must have no batching window: a notice would wait for it"
            )
        _check_scheduled("reconcilers", 1, self.reconciler)


@dataclass(frozen=True, kw_only=True)
class DownlinkSettings:
    """How the functions run that bring events to devices.

    Args:
        reader: of a queue: what shall go down, what devices answer, what is due again.
        reconcilers: functions that share the devices; each looks once a minute at what is due.
        reconciler: how they run; no queue feeds them.
        is_scheduled: otherwise nobody reconciles but who calls the function, as in a run on one machine.
    """

    reader: FunctionSize
    reconcilers: int
    reconciler: FunctionSize
    is_scheduled: bool = True

    def __post_init__(self) -> None:
        _check_scheduled("reconcilers", self.reconcilers, self.reconciler)

    @property
    def shares(self) -> list[list[int]]:
        """The buckets of each reconciler."""
        return [list(range(first, BUCKETS, self.reconcilers)) for first in range(self.reconcilers)]
