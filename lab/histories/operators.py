"""An operator who redrives dead letters and replays with the code of the commands, until they end well."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from contract.publish import Baseline, ContractPublisher
from eventplane.contract import Contract
from eventplane.contract.compiler import compile_contract
from eventplane.contract.publication import ContractTable
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.device_record import REGISTRY
from eventplane.downlink.table import DESIRED
from eventplane.reasons import REPLAY
from eventplane.records import Records
from eventplane.resource_names import dead_letter_queue, queue_name
from lab.histories.cloud import BUCKET, ENVIRONMENT, CloudModel
from lab.histories.iot_core import DENYING
from lab.histories.subscriber import RouteChange
from operations.archive import BucketArchive, Days
from operations.cloud import Cloud as Account
from operations.dead_letters import Redrive
from operations.places import Choice, LetterPlace, inbox_place, place_of
from operations.queues import PlaneQueues
from parts.fleet.access import DeviceAccess, Disposal
from parts.fleet.lifecycle import LifecycleError, UnknownCertificateError
from parts.fleet.service import FleetRegistry
from parts.replay.order import WindowOrder
from parts.replay.orders import Asked, send, window_files

AGAIN_S: Final = 30.0
PUBLISHED: Final = "published-to-care-analytics"
"""The route of the contract that is published in a history."""
ROLLED_OUT: Final = "rolled-out-to-care-analytics"
"""The route of the contract that is rolled out in a history."""


class OperatorSession:
    """Stands in for `boto3.Session`: the clients of a `program` in the simulated cloud."""

    def __init__(self, cloud: CloudModel, program: str) -> None:
        self._cloud = cloud
        self._program = program

    def client(self, service: str, config: object) -> Any:  # noqa: ARG002 - of the session's shape
        return self._cloud.client(self._program, service)


class Operator:
    """Runs commands; `busy` counts those that have not ended."""

    def __init__(self, cloud: CloudModel) -> None:
        self.busy = 0
        self.published: list[RouteChange] = []
        self.candidate: str | None = None
        """The version that is rolled out, once in a history."""
        self.rolled_out: list[RouteChange] = []
        """For events that name the candidate."""
        self.taken: list[RouteChange] = []
        """For all others."""
        self.ordered: list[WindowOrder] = []
        """The orders of all replays."""
        self._asked: deque[Callable[[Account], None]] = deque()
        self._cloud = cloud

    @property
    def has_dead_letters(self) -> bool:
        """True while a dead-letter queue that `redrive_queues` empties has messages."""
        replays = dead_letter_queue(queue_name(ENVIRONMENT, REPLAY))
        queues = self._cloud.sqs.queues.values()
        return any(each.messages for each in queues if each.name.endswith("-dlq") and each.name != replays)

    def redrive(self) -> None:
        """Begin to redrive the dead letters that wait in the inbox for them."""
        self.busy += 1
        self._begin(self._redrive)

    def redrive_queues(self) -> None:
        """Begin to redrive the dead-letter queues that have messages."""
        self.busy += 1
        self._begin(self._redrive_queues)

    def replay(self, participant: str, seconds: float) -> None:
        """Begin to replay what `participant` got within the last `seconds`."""
        self.busy += 1
        until = datetime.fromtimestamp(self._cloud.engine.now_ms / 1_000, UTC)
        asked = Asked(until - timedelta(seconds=seconds), until, participant, None)
        self._begin(partial(self._replay, asked))

    def publish(self, prefix: str) -> None:
        """Begin to publish the contract with a route for types with this `prefix`, '' to withdraw it.

        Not while another one is being published.
        """
        if all(each.done_s is not None for each in self.published):
            self.busy += 1
            change = RouteChange(PUBLISHED, prefix or None, self._cloud.engine.now_s)
            self.published.append(change)
            self._begin(partial(self._publish, change))

    def roll_out(
        self, prefix: str, lasts_s: float, send: Callable[[Contract], None], *, is_taken: bool
    ) -> None:
        """Begin to roll out the contract in force with a route for types with this `prefix`.

        `send` sends a contract to a home. After `lasts_s` seconds the candidate is taken or given up. It is
        done once in a history.
        """
        if not self.rolled_out:
            self.busy += 1
            change = RouteChange(ROLLED_OUT, prefix, self._cloud.engine.now_s)
            self.rolled_out.append(change)
            ended = replace(change, prefix=prefix if is_taken else None, asked_s=change.asked_s + lasts_s)
            self._begin(partial(self._offer, change, ended, send))

    def manage(self, name: str, command: Callable[[FleetRegistry], object]) -> None:
        """Run a command over the fleet after those that were asked for before."""
        self._asked.append(partial(self._manage, name, command))
        if len(self._asked) == 1:
            self.busy += 1
            self._begin(self._manage_all)

    def _manage_all(self, account: Account, _queues: PlaneQueues) -> None:
        while self._asked:
            self._asked[0](account)
            self._asked.popleft()

    def _begin(self, command: Callable[[Account, PlaneQueues], None]) -> None:
        account = Account(OperatorSession(self._cloud, "operator"))

        def run() -> None:
            command(account, PlaneQueues(account, ENVIRONMENT, self._cloud.contract))

        task = self._cloud.engine.spawn("operator", run)
        task.when_over(lambda: self._ended(command, task.failure))

    def _ended(self, command: Callable[[Account, PlaneQueues], None], error: BaseException | None) -> None:
        if error is None:
            self.busy -= 1
        else:  # killed as well
            self._cloud.engine.after(AGAIN_S, lambda: self._begin(command))

    def _manage(self, name: str, command: Callable[[FleetRegistry], object], account: Account) -> None:
        cloud = self._cloud
        iot, data, tables = account.client("iot"), account.client("iot-data"), cloud.tables("operator")
        access = DeviceAccess(iot, data, DENYING)
        disposal = Disposal(iot, data, access, Records(tables, "desired", DESIRED), lambda _: None)
        try:
            command(FleetRegistry(Records(tables, "fleet", REGISTRY), access, disposal, cloud.clock))
        except (LifecycleError, UnknownCertificateError) as error:
            cloud.engine.note("operator", f"{name}: {error}")
        else:
            cloud.engine.note("operator", name)

    def _publisher(self) -> ContractPublisher:
        cloud = self._cloud
        deployment = Baseline(
            cloud.contract.version, cloud.inboxes, "contracts", with_receipts=frozenset(cloud.receipts)
        )
        return ContractPublisher(
            deployment, cloud.tables("operator"), lambda: datetime.fromtimestamp(cloud.clock() / 1_000, UTC)
        )

    def _offer(
        self,
        change: RouteChange,
        ended: RouteChange,
        send: Callable[[Contract], None],
        _account: Account,
        _queues: PlaneQueues,
    ) -> None:
        cloud, publisher = self._cloud, self._publisher()
        head, in_force = publisher.in_force(), cloud.contract
        if head and head.version != in_force.version:
            in_force = ContractTable(cloud.tables("operator"), "contracts").contract(head.version)
        candidate = _with_route(in_force, ROLLED_OUT, str(change.prefix))
        publisher.offer(candidate)
        self.candidate, change.done_s = candidate.version, cloud.engine.now_s
        cloud.engine.note("operator", f"rolls out {candidate.version}")
        # Routers know of it before a device can name it.
        cloud.engine.after(IN_FORCE_S, partial(send, candidate))

        self.rolled_out = [change, ended]
        self.taken = [ended] if ended.prefix else []
        end = partial(self._end, ended, candidate.version, send)
        self.busy += 1
        cloud.engine.after(max(0.0, ended.asked_s - cloud.engine.now_s), lambda: self._begin(end))

    def _end(
        self,
        ended: RouteChange,
        candidate: str,
        send: Callable[[Contract], None],
        _account: Account,
        _queues: PlaneQueues,
    ) -> None:
        cloud, publisher = self._cloud, self._publisher()
        if ended.prefix is None:
            publisher.go_back(candidate)
            send(cloud.contract)
        else:
            publisher.finish(candidate)
        ended.done_s = cloud.engine.now_s
        cloud.engine.note("operator", f"{'gives up' if ended.prefix is None else 'takes'} {candidate}")

    def _publish(self, change: RouteChange, _account: Account, _queues: PlaneQueues) -> None:
        cloud, publisher = self._cloud, self._publisher()
        if self.taken:
            # It would end what was rolled out; that it was asked for says nothing then.
            return
        if change.prefix is None:
            publisher.withdraw()
        else:
            publisher.publish(_with_route(cloud.contract, PUBLISHED, change.prefix))
        change.done_s = cloud.engine.now_s
        cloud.engine.note("operator", f"publishes {change.prefix or 'nothing'}")

    def _replay(self, asked: Asked, account: Account, queues: PlaneQueues) -> None:
        days = Days(BucketArchive(account.s3, BUCKET), asked.since.date(), asked.until.date())
        orders = [asked.order(file) for file in window_files(days, asked, timedelta())]
        send(account.sqs, queues.urls[queue_name(ENVIRONMENT, REPLAY)], orders)
        self.ordered += orders
        self._cloud.engine.note("operator", f"replays {len(orders)} file(s) for {asked.participant}")

    def _redrive(self, account: Account, queues: PlaneQueues) -> None:
        self._redrive_places(account, queues, [inbox_place(self._cloud.contract, queues)])

    def _redrive_queues(self, account: Account, queues: PlaneQueues) -> None:
        given_up = [each for each in queues.dead_letter_queues if any(queues.counts(each.url))]
        # An order that failed for an hour is not repeated.
        replays = dead_letter_queue(queue_name(ENVIRONMENT, REPLAY))
        places = [place_of(each) for each in given_up if each.name != replays]
        self._redrive_places(account, queues, places)

    def _redrive_places(self, account: Account, queues: PlaneQueues, places: Sequence[LetterPlace]) -> None:
        cloud = self._cloud
        redrive = Redrive(
            account.sqs,
            queues,
            cloud.contract,
            dry_run=False,
            progress=lambda _done, _all: None,
            run=cloud.weather.draw(8).hex(),
            clock=cloud.clock,
            sleep=cloud.engine.sleep,
        )
        for place in places:
            done = redrive.place(place, Choice())
            cloud.engine.note("operator", f"redrives {done.moved} dead letter(s) of {place.name}")


def _with_route(contract: Contract, name: str, prefix: str) -> Contract:
    """Return `contract` with the route `name` for types with a `prefix`."""
    document = json.loads(contract.canonical)
    filter = {"prefix": {"type": prefix}}
    document["routes"][name] = {"filter": filter, "to": "care-analytics.inbox"}
    return compile_contract(document, name)
