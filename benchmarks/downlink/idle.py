"""What the reconciler asks for where nothing is due: measured with more and more idle keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any, Final

from benchmarks.cost.prices import dollars
from benchmarks.downlink.site import Site
from benchmarks.downlink.usage import Used
from benchmarks.results import Figure
from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired, Message
from eventplane.downlink.table import to_item

NUMBERS: Final = (0, 1_000, 10_000)
MANY: Final = 1_000_000
RUNS_A_MONTH: Final = 30 * 24 * 60
_BATCH: Final = 25
_KEYS_A_DEVICE: Final = 10


def figures(site: Site) -> list[Figure]:
    """Requests of one run at each of `NUMBERS`, and what a month of `MANY` comes to if that holds."""
    site.reconcile()  # for the cold start
    found = [(number, _run(site, before, number)) for before, number in pairwise((0, *NUMBERS))]
    per_run = [
        Figure(
            f"reconciler_requests_{number}",
            sum(used.requests.values()),
            "requests",
            higher_is_better=False,
            note=f"of one run with {number} more idle keys in the table: {dict(used.requests)}",
        )
        for number, used in found
    ]
    used = found[-1][1]
    cost = RUNS_A_MONTH * dollars(used.units)
    note = (
        f"not measured: {RUNS_A_MONTH} runs a month like the last one, should the requests above grow with "
        "more keys as little as they did; without the keys' storage and the schedule's own price"
    )
    month = Figure(f"reconciler_month_{MANY}", cost, "USD/month", higher_is_better=False, note=note)
    return [*per_run, month]


def _run(site: Site, before: int, number: int) -> Used:
    """What one run uses with `number` idle keys, where there were as many as `before`."""
    write(site, before, number)
    mark = site.mark()
    site.reconcile()
    return site.used(mark)


def write(site: Site, first: int, end: int) -> None:
    """Put the idle keys from `first` to before `end` into the table."""
    dynamodb: Any = site.plane.cloud.client("dynamodb")
    table = site.plane.outputs["DesiredTable"]
    left = items(first, end)
    while requests := [{"PutRequest": {"Item": each}} for each in islice(left, _BATCH)]:
        if dynamodb.batch_write_item(RequestItems={table: requests}).get("UnprocessedItems"):
            raise SystemExit("the emulator took only a part of the idle keys")


def items(first: int, end: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Of states that their devices have stored."""
    for number in range(first, end):
        message = Message(
            uid="",
            version=1,
            is_deleted=False,
            sender="carers",
            source="/carers",
            id=f"idle-{number}",
            text="{}",
        )
        thing, key = f"idle-{number // _KEYS_A_DEVICE}", f"threshold/bench/{number % _KEYS_A_DEVICE}"
        yield to_item(
            Desired(
                thing=thing, key=key, kind=Downlink.STATE, message=message, acknowledged_version=1, revision=2
            )
        )
