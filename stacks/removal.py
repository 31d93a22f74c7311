"""Refuse a deployment that would delete a queue which may hold events.

The queues of the deployed stacks are compared with those of a synthesised assembly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from eventplane.errors import EventPlaneError
from stacks.deployment import Deployment, PlannedStack

_BOXES = ("-inbox", "-outbox", "-replies")


class RemovalError(EventPlaneError):
    """A deployment would delete queues that may hold events. `problems` are one for each of them."""

    def __init__(self, problems: Collection[str]) -> None:
        lines = "\n".join(f"  {each}" for each in problems)
        super().__init__(f"nothing was deployed, because {len(problems)} queue(s) would go:\n{lines}")
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LeavingQueue:
    """A deployed queue that is no longer planned. `name` without project and environment; `messages` in it.

    `is_written`: a router may still write to it, as its participant was never retired.
    """

    name: str
    messages: int
    is_written: bool


def problems(leaving: Collection[LeavingQueue]) -> Iterator[str]:
    """Why each of `leaving` may not be deleted, with the remedy."""
    for queue in leaving:
        if queue.is_written:
            yield (
                f"{queue.name}: routers may still write to it; put back what left the contract, with "
                "`retired: true` on its participant, deploy, and remove it once its queues are empty"
            )
        elif queue.messages:
            yield f"{queue.name}: {queue.messages} message(s) are left; let them be read, or move them, first"


def leaving_queues(deployment: Deployment, planned: Collection[PlannedStack]) -> Iterator[LeavingQueue]:
    """The deployed queues that `planned` no longer has."""
    kept = {queue for stack in planned for queue in stack.queues}
    retired = {name for stack in planned for name in deployment.retired(stack.name)}
    for stack in planned:
        # Project and environment, as in the stack's own name: eventplane-dev-messaging.
        prefix = "-".join(stack.name.split("-")[:2]) + "-"
        for url in deployment.queue_urls(stack.name):
            full_name = url.rsplit("/", 1)[-1]
            if full_name not in kept:
                name = full_name.removeprefix(prefix)
                participant = _participant(name)
                yield LeavingQueue(
                    name, deployment.messages(url), participant is not None and participant not in retired
                )


def _participant(queue: str) -> str | None:
    """Whose box a queue is, None for the plane's own queues."""
    name = queue.removesuffix(".fifo").removesuffix("-dlq")
    return next((name.removesuffix(box) for box in _BOXES if name.endswith(box)), None)


def check_removals(deployment: Deployment, planned: Collection[PlannedStack]) -> None:
    """Raises `RemovalError` when deploying `planned` would delete a queue that may hold events."""
    if found := list(problems(list(leaving_queues(deployment, planned)))):
        raise RemovalError(found)
