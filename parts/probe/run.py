"""One run: the steps in their order, what each sends and what it has to see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.account import by_router
from eventplane.batch import pack, unpack
from eventplane.contract import ParticipantKind
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.device_reports import ACKNOWLEDGED, forwarder_source
from eventplane.downlink.device import stored, to_data
from eventplane.downlink.wire import received
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.reasons import Outcome
from eventplane.sending import stamp_sender
from eventplane.sqs_binding import send_request, split
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.probe import ConnectionEndedError
from operations import system
from operations.archive import BucketArchive, Days, Record
from operations.cloud import explained
from operations.glue_audit import GlueAudit
from operations.patience import PAUSE_S, NotSeenError, Patience
from operations.reading import Peek
from operations.trace import deciding_contract, due_inboxes
from parts.probe.alarms import Notification, NotInContractError, WrongOutcomeError, invoke_canary
from parts.probe.connection import DeviceProbe
from parts.probe.control import Removals, Requests
from parts.probe.plane import DeployedPlane, Evidence
from parts.probe.result import Seen, StepResult, StepStatus
from parts.probe.samples import Sample, Samples
from parts.probe.throwaway import DeviceEndpoint, ThrowAwayDevice, provision

_LOOK: Final = "see the logs of the routers and ledger-writer, the age of their queues, `eventplane trace`"
_MOST_LEFT: Final = 1_000
"""Messages in an inbox up to which it is searched for what the test sent."""
_CONNECT_TRIES: Final = 3
"""IoT Core takes one CONNECT a second of a client id, and the provisioning has just tried it."""
_SETTLED: Final = (Outcome.DELIVERED, Outcome.NO_INTEREST)
"""What may become of an event on a route: its reader may have announced that it handles others."""
_ALLOWED_FINDINGS: Final = frozenset({"duplicate", "late", "clock_skew"})
"""What breaks no promise: delivery is at least once (docs/explanation/audit.md)."""
_ANSWER_S: Final = 30.0
"""How long IoT Core may take for one answer, seconds."""


class PeopleNotInformedError(EventPlaneError):
    """The `environment` keeps its data, so people read what a smoke test sends there."""

    environment: str
    message = (
        "{environment} keeps its data, so people read its inboxes: the test raises an alarm of a home "
        "called smoke-..., and one CloudWatch alarm of each alarm topic. Inform carers, relatives and "
        "who is on call, then add --people-are-informed (make smoke PEOPLE_ARE_INFORMED=1)"
    )


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of a run. Times are seconds."""

    endpoint: DeviceEndpoint
    people_are_informed: bool
    patience: Patience
    audit_patience: Patience


@dataclass(frozen=True, slots=True)
class Check:
    """Something to show, called `name`, once the steps that it `needs` have passed."""

    name: str
    run: Callable[[], Seen]
    needs: tuple[str, ...] = ()


@dataclass
class SmokeRun:
    """A run called `name` in `plane`; its files are in `folder`, what it made is in `removals`."""

    name: str
    plane: DeployedPlane
    choices: Choices
    folder: Path
    removals: Removals
    requests: Requests
    held: Callable[[], AbstractContextManager[None]]
    kept: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        cloud = self.plane.cloud
        self._began = system.now()
        self._bucket = self.plane.output("ArchiveBucket")
        self._evidence = Evidence(cloud.s3, self._bucket, self.name, self._began)
        self._thing = ThrowAwayDevice(self.plane, self.name, self.removals, self.held)
        self._samples = Samples(self.plane.contract, self.name)
        self._malformed = f"smoke test {self.name}: no event".encode()
        self._device: DeviceProbe | None = None
        self._last_ms = 0
        self._unread: set[str] = set()

    @property
    def steps(self) -> Sequence[Check]:
        """The steps in their order: everything is sent first, because the archive takes its time."""
        sent = ("send",)
        return (
            Check("deployment", self._deployment),
            Check("certificate", self._certificate, ("deployment",)),
            Check("connection", self._connection, ("certificate",)),
            Check("send", self._send, ("connection",)),
            Check("command", self._command, ("connection",)),
            Check("other device's topic", self._other_topic, ("connection",)),
            Check("decommissioning", self._decommissioning, ("certificate",)),
            Check("notification", self._notification, ("deployment",)),
            Check("canary", self._canary, ("deployment",)),
            Check("event", lambda: self._delivered("event"), sent),
            Check("alarm", lambda: self._delivered("alarm"), sent),
            Check("malformed message", self._dead_letter, sent),
            Check("forged event", self._refused, sent),
            Check("archive", self._archived, sent),
            Check("audit", self._audited, ("archive",)),
        )

    def run(self, report: Callable[[StepResult], None]) -> None:
        """Run all steps, and `report` each as it ends. A failed one ends only those that need it."""
        passed: set[str] = set()
        for step in self.steps:
            if missing := [each for each in step.needs if each not in passed]:
                report(StepResult(step.name, StepStatus.NOT_RUN, f"needs {', '.join(missing)}"))
                continue
            result = self._take(step)
            if result.status is StepStatus.PASSED:
                passed.add(step.name)
            report(result)

    def _take(self, step: Check) -> StepResult:
        began = system.monotonic()
        requests = self.requests.start()
        status, shown = StepStatus.PASSED, Seen("")
        try:
            shown = step.run()
        except NotInContractError as error:
            status, shown = StepStatus.ABSENT, Seen(str(error))
        except EventPlaneError as error:
            status, shown = StepStatus.FAILED, Seen(str(error))
        except ClientError as error:
            id = error.response.get("ResponseMetadata", {}).get("RequestId")
            status, shown = StepStatus.FAILED, Seen(str(explained(error)), reference=id)
        except BotoCoreError as error:
            status, shown = StepStatus.FAILED, Seen(str(explained(error)))
        reference = shown.reference or next(reversed(requests.values()), "")
        took_s = system.monotonic() - began
        noted = dict(requests)
        return StepResult(step.name, status, shown.words, took_s, shown.latency_s, reference, noted)

    # What is sent.

    def _deployment(self) -> Seen:
        plane = self.plane
        if plane.keeps_data and not self.choices.people_are_informed:
            raise PeopleNotInformedError(plane.environment)
        deployed = plane.output("ContractVersion")
        note = "" if deployed == plane.contract.version else "; this checkout has another one"
        return Seen(f"{plane.stacks} stacks, contract {deployed[:12]}{note}")

    def _certificate(self) -> Seen:
        if not self.plane.keeps_data:
            # Each look costs every message a receive, and some looks all of them: not where others' wait.
            self._unread = {name for name, url in self._inboxes() if self._waiting(url)}
        self.removals.add("messages of the test in the inboxes of others", self._clear_inboxes)
        # After the device, whose presence has to end before its connection.
        self.removals.add("connection of the device", self._disconnect)
        self._thing.register()
        self._thing.make_claim(self.folder)
        began = system.monotonic()
        endpoint, patience = self.choices.endpoint, self.choices.patience
        self._pair = provision(
            self.plane, endpoint, self.name, self.folder, patience.timeout_s, self._thing.created
        )
        return Seen(f"{self.name} has its own, by the claim", system.monotonic() - began)

    def _connection(self) -> Seen:
        endpoint, rule = self.choices.endpoint, self.plane.output("IngestRule")
        began = system.monotonic()
        for tries_left in reversed(range(_CONNECT_TRIES)):
            self._device = DeviceProbe(
                endpoint.host,
                endpoint.port,
                self.name,
                TlsFiles(endpoint.ca, self._pair, self._pair),
                rule,
                _ANSWER_S,
                reads_inbox=True,
            )
            try:
                self._device.wait_connected()
                break
            except ConnectionEndedError:
                self._disconnect()
                if not tries_left:
                    raise
                system.sleep(PAUSE_S)
        # Connected meanwhile: for a device that is away, presence would notify carers.
        self.choices.patience.until(
            self._thing.is_in_service,
            f"the first connection of {self.name} in the fleet's registry",
            "see the log of the function certificate-keeper and the queue of connections that it reads",
        )
        words = f"to {endpoint.host}, subscribed to its inbox, in service by the registry"
        return Seen(words, system.monotonic() - began, self.name)

    def _send(self) -> Seen:
        device = self._connected
        device.report(self._malformed)
        for what, (sender, event) in self._sent.items():
            device.report(pack([event.stamped(senderservice=sender)]), is_urgent=what == "alarm")
        types = ", ".join(f"{what} ({event.type})" for what, (_, event) in self._sent.items())
        return Seen(f"a malformed message, {types or 'no event'}: acknowledged by IoT Core")

    @property
    def _sent(self) -> dict[str, Sample]:
        """The events that the device sends."""
        return {what: each for what, each in self._samples.found.items() if what != "command"}

    def _command(self) -> Seen:
        device = self._connected
        sender, command = self._samples.of("command")
        url = self.plane.channel_url(f"{sender}.outbox")
        began = system.monotonic()
        sent = self.plane.cloud.sqs.send_message(**send_request(url, command))
        while True:
            if (message := device.receive(timeout_s := self.choices.patience.timeout_s)) is None:
                remedy = "see the logs of the function downlink and of the router of the sender's outbox"
                raise NotSeenError("a message in the device's inbox", timeout_s, remedy)
            incoming = [received(each) for each in _events(message.payload)]
            took_s = system.monotonic() - began
            self._acknowledge(device, incoming)
            if any(each.id == command.id for each in incoming):
                break  # before it, there may have been what the cloud tells every device
        self.choices.patience.until(
            self._nothing_waits,
            "the acknowledgement of the command in the table of what devices should have",
            "see the log of the function downlink",
        )
        return Seen(f"from {sender}.outbox to the device, acknowledged", took_s, sent["MessageId"])

    def _other_topic(self) -> Seen:
        other = f"{self.name}-other"
        if not self._connected.is_refused_as(other):
            raise WrongOutcomeError(
                "a publish to the outbox of another device",
                "it did not end the connection",
                "see the device policy",
            )
        return Seen("IoT Core ended the connection", reference=other)

    def _decommissioning(self) -> Seen:
        """Remove the device at once: what follows may take longer than presence waits for it to come back."""
        self._thing.remove()
        return Seen("its certificates are revoked and deleted, the plane knows it no more")

    def _notification(self) -> Seen:
        prefix = self.plane.name("")
        return Notification(self.plane.cloud, prefix, self.name, self.removals).exercise(
            self.choices.patience
        )

    def _canary(self) -> Seen:
        return invoke_canary(self.plane, self.choices.patience)

    # What the archive has to show.

    def _delivered(self, sample: str) -> Seen:
        """See that every route which the contract gives the event called `sample` delivered it."""
        service, event = self._samples.of(sample)
        what = f"the {sample}"

        def look() -> list[Record] | None:
            rows = [each for each in self._evidence.ledger() if each["id"] == event.id]
            if bad := [each for each in rows if each["outcome"] not in _SETTLED]:
                row = bad[-1]
                problem = f"is {row['outcome']}, {row['reason']}, on route {row['route']}"
                raise WrongOutcomeError(what, problem, "see this reason in docs/how-to/runbook.md")
            stamped = stamp_sender(event, Sender(self.name, service))
            owed = due_inboxes(stamped, deciding_contract(rows, self._compiled, self.plane.contract))
            is_delivered = any(each["outcome"] == Outcome.DELIVERED for each in rows)
            return rows if is_delivered and owed <= {by_router(each).inbox for each in rows} else None

        rows = self.choices.patience.until(look, f"the delivery of {what} on all its routes", _LOOK)
        delivered = [each for each in rows if each["outcome"] == Outcome.DELIVERED]
        first = {each["destination"]: each for each in reversed(delivered)}
        latency_s = max(each["decided_at_ms"] - each["entered_at_ms"] for each in first.values()) / 1_000
        words = f"delivered to {', '.join(sorted(first))}"
        return Seen(words, latency_s, delivered[0]["message_id"])

    def _compiled(self, version: str) -> bytes | None:
        today = self._began.date()
        return Days(BucketArchive(self.plane.cloud.s3, self._bucket), today, today).contract(version)

    def _dead_letter(self) -> Seen:
        """See the refusal of what is no event, which the ledger knows by the device, and its dead letter."""

        def look() -> tuple[Record, Record] | None:
            refusals = [each for each in self._evidence.ledger() if self._is_refusal(each, "")]
            return self._with_letter(refusals, lambda row: f"{row['message_id']}.0")

        return self._shown(
            self.choices.patience.until(look, "the dead letter of the malformed message", _LOOK)
        )

    def _refused(self) -> Seen:
        """See that the event in another's name was refused for its sender, and delivered to nobody."""
        sender, event = self._samples.of("forged")

        def look() -> tuple[Record, Record] | None:
            rows = [each for each in self._evidence.ledger() if each["id"] == event.id]
            if taken := [each for each in rows if each["outcome"] == Outcome.DELIVERED]:
                problem = f"was delivered to {taken[0]['destination']}"
                raise WrongOutcomeError(
                    f"the event in the name of {sender}",
                    problem,
                    "roll the deployment back",
                )
            refusals = [each for each in rows if self._is_refusal(each, event.id)]
            return self._with_letter(refusals, lambda row: letter_id(row["sender"], event.source, event.id))

        return self._shown(self.choices.patience.until(look, "the refusal of the forged event", _LOOK))

    def _is_refusal(self, row: Record, id: str) -> bool:
        is_own: bool = row["client_id"] == self.name and row["id"] == id and row["type"] != DEAD_LETTER_TYPE
        return is_own and bool(row["outcome"] == Outcome.DEAD_LETTERED)

    def _with_letter(
        self, refusals: Sequence[Record], id_of: Callable[[Record], str]
    ) -> tuple[Record, Record] | None:
        """The first refusal whose dead letter was delivered, and that delivery."""
        letters = {
            each["id"]: each
            for each in self._evidence.ledger()
            if each["type"] == DEAD_LETTER_TYPE and each["outcome"] == Outcome.DELIVERED
        }
        return next(((each, letters[id]) for each in refusals if (id := id_of(each)) in letters), None)

    def _shown(self, found: tuple[Record, Record]) -> Seen:
        refusal, letter = found
        latency_s = (refusal["decided_at_ms"] - refusal["entered_at_ms"]) / 1_000
        words = f"{refusal['reason']}, its dead letter in {letter['destination']}"
        return Seen(words, latency_s, refusal["message_id"])

    def _archived(self) -> Seen:
        """See everything that was sent in the tap, which knows nothing of the routers."""
        wanted = {event.id for _, event in self._sent.values()}

        def look() -> list[Record] | None:
            rows = [each for each in self._evidence.tap() if each["client_id"] == self.name]
            events = [each["event"] for each in rows if each["event"] is not None]
            has_all = all(any(f'"{id}"' in text for text in events) for id in wanted)
            return rows if has_all and any(each["event"] is None for each in rows) else None

        remedy = "see the log of the function archive-writer and the age of the queue tap"
        rows = self.choices.patience.until(look, "what the device sent in the archive's tap", remedy)
        self._last_ms = max(each["accepted_at_ms"] for each in rows)
        late_s = max(each["archived_at_ms"] - each["accepted_at_ms"] for each in rows) / 1_000
        return Seen(f"{len(rows)} items of the device in the tap", late_s, rows[0]["message_id"])

    def _audited(self) -> Seen:
        """Audit the day, and see that the audit read what was sent and found nothing wrong with it."""
        day = f"{self._began:%Y-%m-%d}"
        names = self.plane.outputs
        job = names.get("DeliveryAuditTodayJob") or self.plane.output("DeliveryAuditJob")

        def started(run: str) -> None:
            self.removals.add(f"run {run} of {job}, if it is not over", lambda: audit.stop(run))

        audit = GlueAudit(self.plane.cloud, job, self._bucket, started)
        document = audit.report(day, self.choices.audit_patience)
        window = document["window"]
        if window["date"] != day or (window["last_accepted_ms"] or 0) < self._last_ms:
            raise WrongOutcomeError(
                "the audit", f"read {window['tap_rows']} items, and not those of this run", "see its log"
            )
        self._check_findings(document)
        share = document["coverage"]["share"]
        coverage = "" if share is None else f", coverage {share:.0%}"
        words = f"verdict on {day}: {document['verdict']}{coverage}; read {window['tap_rows']} items and "
        return Seen(f"{words}{window['ledger_rows']} decisions, of this run's it found what was planted")

    def _check_findings(self, document: Mapping[str, Any]) -> None:
        """Raise `WrongOutcomeError` unless the audit found the two dead letters of this run, and no more."""
        findings = document["findings"]
        own = [
            each
            for each in findings
            if any(self.name in str(each[name]) for name in ("device", "source", "id"))
        ]
        # What is malformed has no id.
        forged = [event.id for what, (_, event) in self._sent.items() if what == "forged"]
        planted = {("dead_lettered", None), *(("dead_lettered", id) for id in forged)}
        found = {(each["kind"], each["id"] or None) for each in own}
        is_cut = len(findings) >= document["limits"]["findings"]
        others = {each for each in found - planted if each[0] not in _ALLOWED_FINDINGS}
        if others or (planted - found and not is_cut):
            listed = ", ".join(sorted(f"{kind} of {id or 'what has no id'}" for kind, id in found))
            raise WrongOutcomeError(
                "the audit",
                f"found {listed or 'nothing'}, not the dead letters of "
                f"{' and of '.join(['the malformed message', *forged])}",
                "see docs/explanation/audit.md for each finding",
            )

    # What is left.

    def _clear_inboxes(self) -> None:
        """Delete what the test brought into queues that nobody may read. Raises botocore's errors."""
        if self.plane.keeps_data:
            self.kept.append("what came to inboxes: their readers take it")
            return
        for name, url in self._inboxes():
            if name in self._unread:
                self.kept.append(f"what came to {name}: events of others waited there before")
            elif self._waiting(url) > _MOST_LEFT:
                self.kept.append(f"what came to {name}: more waits there than is searched")
            else:
                self._clear(url)

    def _inboxes(self) -> Iterator[tuple[str, str]]:
        """The inboxes of cloud services that are deployed, and the URLs of their queues."""
        for participant in self.plane.contract.of_kind(ParticipantKind.CLOUD_SERVICE):
            name = f"{participant.name}.inbox"
            if url := self.plane.queues.channel_urls.get(name):
                yield name, url

    def _clear(self, url: str) -> None:
        with Peek(self.plane.cloud.sqs, url) as reading:
            for page in reading.pages():
                own = [each for each in page if self._is_own(each["Body"])]
                if own:
                    reading.delete(own)

    def _is_own(self, body: str) -> bool:
        """Whether all events of a message are of this run; with one of somebody else's it stays."""
        # A dead letter has the malformed message in base64, and its digest.
        names = self.name, hashlib.sha256(self._malformed).hexdigest()
        try:
            return all(any(name in text for name in names) for text in split(body))
        except EnvelopeError:
            return False

    def _waiting(self, url: str) -> int:
        name = "ApproximateNumberOfMessages"
        answer = self.plane.cloud.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def _disconnect(self) -> None:
        if self._device is not None:
            self._device.close()

    @property
    def _connected(self) -> DeviceProbe:
        if self._device is None:
            raise AssertionError("a step that needs the connection runs after it")
        return self._device

    def _acknowledge(self, device: DeviceProbe, incoming: Sequence[Any]) -> None:
        names = {"id": f"{self.name}-ack-{system.time_ns()}", "source": forwarder_source(self.name)}
        data = to_data(map(stored, incoming), self.name)
        device.report(pack([write_event({**names, "type": ACKNOWLEDGED}, data)]))

    def _nothing_waits(self) -> bool:
        return all(each.message is None and not each.waiting for each in self._thing.desired.of(self.name))


def _events(payload: bytes) -> list[Envelope]:
    """The events of a message to the device's inbox. Raises `EnvelopeError`."""
    events = []
    for each in unpack(payload):
        if isinstance(each, tuple):
            raise each[1]
        events.append(each)
    return events
