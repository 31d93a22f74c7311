"""How one function runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration

from stacks.setting_error import EnvironmentSettingError

VISIBILITY_FACTOR: Final = 6
"""A source queue hides a message for so many function timeouts (AWS Lambda guide for SQS)."""


@dataclass(frozen=True, kw_only=True)
class FunctionSize:
    """How one function runs: memory in MiB, timeout and batching window in seconds, messages a batch.

    A source queue hides a message for `visibility_factor` timeouts: 6 leave Lambda the time to try again what
    it throttled (AWS Lambda guide for SQS). Fewer bring a killed function's messages back sooner, where a
    message has receives to spare for throttled ones.
    `max_concurrency` bounds the batches of one source queue that are worked on at a time.
    `reserved_concurrency` keeps so many of the account's executions free for this function alone.
    `provisioned_concurrency` keeps so many of its executions warm, so that they start without delay; they
    cost as long as they are kept.
    """

    memory_mib: int
    timeout_s: int
    batch_size: int
    batch_window_s: int
    max_concurrency: int
    reserved_concurrency: int | None = None
    provisioned_concurrency: int | None = None
    visibility_factor: int = VISIBILITY_FACTOR

    def __post_init__(self) -> None:
        # Bounds of AWS Lambda and of its event source mappings for SQS.
        self._check("memory_mib", 128, 10_240)
        self._check("timeout_s", 1, 900)
        self._check("batch_size", 1, 10_000)
        self._check("batch_window_s", 0, 300)
        self._check("max_concurrency", 2, 1_000)
        # A queue that hides messages for less than a timeout cannot feed the function.
        self._check("visibility_factor", 1, VISIBILITY_FACTOR)
        if self.batch_size > 10 and self.batch_window_s < 1:
            raise EnvironmentSettingError("batch_window_s", "must be 1 or more with a batch_size beyond 10")
        if self.reserved_concurrency is not None and self.reserved_concurrency < self.max_concurrency:
            # Lambda would throttle what the mapping sends, and every throttled message spends a receive.
            raise EnvironmentSettingError("reserved_concurrency", "must not be below max_concurrency")
        if self.provisioned_concurrency is not None:
            # While a version is deployed the old one keeps its executions: there are twice as many.
            most = (self.reserved_concurrency or 2 * self.max_concurrency) // 2
            self._check("provisioned_concurrency", 1, most)

    def _check(self, setting: str, low: int, high: int) -> None:
        value = getattr(self, setting)
        if not low <= value <= high:
            raise EnvironmentSettingError(setting, f"is {value}, not within {low} to {high}")

    @property
    def timeout(self) -> Duration:
        return Duration.seconds(self.timeout_s)

    @property
    def visibility(self) -> Duration:
        """How long the source queue hides a message that this function works on."""
        return Duration.seconds(self.visibility_factor * self.timeout_s + self.batch_window_s)
