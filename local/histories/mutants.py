"""Faults of the product, planted one at a time: how many the histories find, and after how many of them.

`python -m local.histories.mutants`: exit status 0 if as many as required were found, else 1. What is found of
the product itself in the same story does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.results import Figure, write

ROOT: Final = Path(__file__).parents[2]
REQUIRED: Final = 40
SEEDS: Final = 300
PRODUCT: Final = "the product as it is"
MUTANT_S: Final = 900
"""CPU seconds for the histories of one mutant; one that takes longer hangs, which is a finding as well."""


class Mutant(NamedTuple):
    """What `fault` is: in the file at `path` the text `old`, which it has once, is `new`."""

    fault: str
    path: str
    old: str
    new: str


Findings = dict[str, list[str]]
"""The kinds of findings by the seed of their story."""


MUTANTS: Final = (
    # The device.
    Mutant(
        "a message is acknowledged before the commit",
        "edge/forwarder.py",
        "self._components.dispatcher.take(message, batch, resumed=resumed)",
        "self._components.dispatcher.take(message, batch, resumed=resumed)\n"
        "                link.acknowledge(message.generation, message.mid)",
    ),
    Mutant(
        "the uplink does not rewind when its connection ends",
        "edge/forwarder.py",
        "self._settle(self.uplink.disconnected(), batch)",
        "pass",
    ),
    Mutant(
        "a PUBACK of an earlier connection counts",
        "edge/forwarder.py",
        "if message.generation != self._links[message.link].generation:",
        "if False:",
    ),
    Mutant(
        "a service has a receipt for what found no room",
        "edge/planning.py",
        "answers.append(Receipt(digest(submission.payload), refused))",
        "answers.append(Receipt(digest(submission.payload), None))",
    ),
    Mutant(
        "inboxes do not rewind when the home's connection ends",
        "edge/components.py",
        "            inbox.rewind()",
        "            pass",
    ),
    Mutant(
        "urgent events in memory are dropped when the disk is back",
        "edge/components.py",
        "self.send_volatile(before.abandon())",
        "before.abandon()",
    ),
    Mutant(
        "an urgent event waits behind ordinary ones",
        "edge/uplink.py",
        "if not (self._poison.needs_proof and self._poison.urgent):",
        "if not self._queue.fill(1):",
    ),
    Mutant(
        "a publish without a PUBACK is not sent again",
        "edge/uplink.py",
        "if oldest is None or now < oldest.sent_at + self._settings.puback_timeout_s:",
        "if True:",
    ),
    Mutant(
        "a delivery without a receipt is not sent again",
        "edge/inbox.py",
        "if overdue is not None and now >= overdue:",
        "if False:",
    ),
    Mutant(
        "the home's broker answers for a service that has receipts",
        "edge/inbox.py",
        "return self._queues.delivered(each.delivery for each in self._end(mid))",
        "return self._queues.delivered(each.delivery for key in list(self._sent) for each in self._end(key))",
    ),
    Mutant(
        "the answer to PINGREQ has no time",
        "eventplane_mqtt/session.py",
        "        self.received_at = now  # its",
        "        # its",
    ),
    Mutant(
        "a silent connection is never presumed dead",
        "eventplane_mqtt/session.py",
        "return self.asked and self.reading and self._is_due(now)",
        "return False",
    ),
    Mutant(
        "an urgent event hurries no connection",
        "eventplane_mqtt/link.py",
        "            self._act_at = min(self._act_at, self._hurried_at)",
        "            pass",
    ),
    Mutant(
        "the end of an earlier connection ends the present one",
        "eventplane_mqtt/link.py",
        "return self._connection is not None and generation == self.generation",
        "return self._connection is not None",
    ),
    Mutant(
        "an older state counts as newer on the device",
        "eventplane/downlink/device.py",
        "return Recency.NEWER if of_incoming > of_held else Recency.OLDER",
        "return Recency.NEWER",
    ),
    Mutant(
        "an unproven pair is overwritten",
        "edge/provisioning/renewal.py",
        'number = f"-{max(kept) + 1}" if kept else ""',
        'number = ""',
    ),
    Mutant(
        "a device never asks with the claim for a condemned certificate",
        "edge/provisioning/renewal.py",
        "elif self._is_refused():",
        "elif False:",
    ),
    # The life of keys.
    Mutant(
        "the registry accepts only the last pending certificate",
        "eventplane/fleet.py",
        "found = next((each for each in device.candidates if each.certificate == certificate), None)",
        "found = next((each for each in device.candidates[-1:] if each.certificate == certificate), None)",
    ),
    Mutant(
        "a recovery leaves a thief's pending certificate",
        "eventplane/fleet.py",
        'known - {keep or "", *device.surplus}',
        'known - {keep or "", *device.pending}',
    ),
    Mutant(
        "what the claim registered besides is not condemned",
        "eventplane/fleet.py",
        "condemned=device.condemned | ended - {*device.surplus} if is_claimed else device.condemned",
        "condemned=device.condemned",
    ),
    Mutant(
        "a claim registers a device in service",
        "eventplane/fleet.py",
        "if device.state is LifecycleState.PROVISIONED and now_ms >= device.replacement_until_ms:",
        "if False:",
    ),
    Mutant(
        "a replaced certificate stays active",
        "lambdas/fleet/rotation.py",
        'self._set(certificate, "REVOKED" if is_condemned else "INACTIVE")',
        "pass",
    ),
    Mutant(
        "a condemned certificate is revoked by the keeper only",
        "operations/fleet/access.py",
        'self._iot.update_certificate(certificateId=certificate, newStatus="REVOKED")',
        "pass",
    ),
    Mutant(
        "a recovery does not activate the certificate that it keeps",
        "operations/fleet/service.py",
        "*self.access.attach(thing, device.suspended), *self.access.resume(device.suspended)",
        "*self.access.attach(thing, device.suspended)",
    ),
    Mutant(
        "a claim uses up the day of a device that was recovered",
        "eventplane/fleet.py",
        "is_open = holder == CLAIM and now_ms < device.replacement_until_ms",
        "is_open = False",
    ),
    # The functions.
    Mutant(
        "an unwritten ledger counts as written",
        "lambdas/router/service.py",
        "is_written = self._write(facts, invocation)",
        "is_written = self._write(facts, invocation) or True",
    ),
    Mutant(
        "an event that was not sent counts as routed",
        "lambdas/router/service.py",
        "            failed |= unsent\n",
        "",
    ),
    Mutant(
        "a refused delivery counts as done",
        "lambdas/router/dispatch.py",
        "is Acceptance.TAKEN:\n                done.append(step)\n            elif",
        "is not Acceptance.NEVER:\n                done.append(step)\n            elif",
    ),
    Mutant(
        "a failed call of SQS counts as taken",
        "lambdas/common/sqs.py",
        "return [_refused(error_code(error), str(error))] * len(batch)",
        "return [TAKEN] * len(batch)",
    ),
    Mutant(
        "an exception counts as success",
        "lambdas/common/redelivery.py",
        'handled", message_id=message.id)\n            failed.add(message.id)',
        'handled", message_id=message.id)',
    ),
    Mutant(
        "a failed message is deleted from its queue",
        "lambdas/common/redelivery.py",
        "return partial_response(again, failed)",
        "return partial_response([], failed)",
    ),
    Mutant(
        "the ledger's writer forgets a failure",
        "lambdas/archive/ledger.py",
        "failed = frozenset(message.id for message in messages) - safe",
        "failed: frozenset[str] = frozenset()",
    ),
    Mutant(
        "what S3 refused counts as archived",
        "lambdas/common/archive.py",
        "            return frozenset()\n",
        "            pass\n",
    ),
    Mutant(
        "timers are never armed",
        "lambdas/presence/timer_queue.py",
        "taken = send_all(self._sender, self._url, messages)",
        "taken = [bool(messages)] * len(waiting)",
    ),
    Mutant(
        "a redelivered timer arms nothing",
        "lambdas/presence/timers.py",
        "elif _is_redelivered(fired[device]) or any(",
        "elif any(",
    ),
    Mutant(
        "a redelivered observation arms no timer",
        "lambdas/presence/recorder.py",
        "(stored.due_ms != known.due_ms or _is_redelivered(those))",
        "stored.due_ms != known.due_ms",
    ),
    Mutant(
        "a state of presence that was not written counts as written",
        "lambdas/presence/recorder.py",
        "failed |= {message.id for those in waiting.values() for message, _ in those}",
        "",
    ),
    Mutant(
        "any sighting of a device is newer",
        "lambdas/presence/recorder.py",
        "case Sighting() as seen if state.sighting is None or seen.is_newer_than(state.sighting):",
        "case Sighting() as seen:",
    ),
    Mutant(
        "presence is written without a condition",
        "lambdas/presence/table.py",
        "return self._records.write(replace(state, due_ms=due_ms))",
        "return self._records.force(replace(state, due_ms=due_ms))",
    ),
    Mutant(
        "a report of presence is forgotten before it is sent",
        "lambdas/presence/judge.py",
        "        messages = (to_message(parse_event(text)) for _, text in waiting)\n",
        "        messages = (to_message(parse_event(text)) for _, text in waiting)\n"
        "        decided = [self._forget(each, (), remaining_ms) for each in decided]\n",
    ),
    Mutant(
        "a report of presence that SQS refused counts as sent",
        "lambdas/presence/judge.py",
        "            if not is_taken:\n",
        "            if False:\n",
    ),
    Mutant(
        "reports of presence that SQS takes in part all count as sent",
        "lambdas/presence/judge.py",
        "tuple(left[each.device])",
        "tuple(left[each.device] if len(left[each.device]) == len(each.unsent) else ())",
    ),
    Mutant(
        "an item whose device is absent is looked at again in an hour",
        "eventplane/downlink/transitions.py",
        "wait_ms = min(LOOK_MS << looks, AWAY_MS)",
        "wait_ms = AWAY_MS if looks else LOOK_MS",
    ),
    Mutant(
        "no check follows a transmission",
        "lambdas/downlink/items.py",
        "        if item.due_at_ms is not None:\n            self._work.check",
        "        if False:\n            self._work.check",
    ),
    Mutant(
        "a lost race for a desired state counts as won",
        "lambdas/downlink/items.py",
        "if self._stored(item, step):",
        "if self._stored(item, step) or True:",
    ),
    Mutant(
        "nothing is sent again to a device that subscribed",
        "lambdas/downlink/due.py",
        "return not is_device or self._resend(thing, message.sent_at_ms, None, remaining_ms)",
        "return True",
    ),
    Mutant(
        "any answer acknowledges a command",
        "eventplane/downlink/transitions.py",
        "    named = (ack.version, ack.sender, ack.source, ack.id)\n",
        "    named = message.identity\n",
    ),
    Mutant(
        "a conditional write whose answer was lost counts as somebody else's",
        "eventplane_aws/tables.py",
        "return there.get(WRITER) == token",
        "return False",
    ),
    # The client.
    Mutant(
        "the filter claims without a condition",
        "eventplane_client/dynamodb.py",
        "if stored := self._claims.write(wanted):",
        "if stored := self._claims.force(wanted):",
    ),
    Mutant(
        "the filter never learns that an event is done",
        "eventplane_client/reader.py",
        "if handled and self._filter:",
        "if False:",
    ),
    Mutant(
        "a forced claim that failed counts as won",
        "eventplane_client/reader.py",
        "if verdict not in (Verdict.NEW, Verdict.DOUBT):",
        "if False:",
    ),
    Mutant(
        "an event in doubt is handled although the program says no",
        "eventplane_client/reader.py",
        "return bool(again)",
        "return True",
    ),
    Mutant(
        "an event that is given back stays claimed",
        "eventplane_client/reader.py",
        "        self._free([failed])  #",
        "        #",
    ),
    Mutant(
        "a pack is acknowledged with its first event",
        "eventplane_client/packs.py",
        "elif not pack.is_ended and (self._at_once or not (pack.open or pack.wait_s is not None)):",
        "elif not pack.is_ended:",
    ),
    Mutant(
        "an event of a pack that was given back never comes again",
        "eventplane_client/packs.py",
        "self._given_back[_digest(pack.message)] = pack.given_back",
        "self._given_back[_digest(pack.message)] = set()",
    ),
)


class Planted(SourceFileLoader):
    """Imports the product with the fault: what is compiled of its file is not what is in it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        super().__init__(mutant.path.removesuffix(".py").replace("/", "."), str(ROOT / mutant.path))

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002 - the module of this loader
        text = self.get_data(self.path).decode().replace(self._mutant.old, self._mutant.new)
        return self.source_to_code(text.encode(), self.path)


def run(seeds: range, known: Findings, *, is_planted: bool) -> Findings:
    """Run stories; return what is found that is not `known`, of a planted fault the first of it."""
    # Only now, so that the fault is in what is imported.
    from local.histories.search import quieten, shipped, story_of, told

    quieten()
    found: Findings = {}
    for seed in map(str, seeds):
        kinds = {each.kind for each in told(story_of(int(seed)), shipped()).findings}
        if kinds := kinds.difference(known.get(seed, ())):
            found[seed] = sorted(kinds)
            if is_planted:
                break
    return found


def tried(seeds: range, known: Findings, fault: str) -> Findings:
    """Return what a process of its own finds in stories of the product with a `fault`; "": as it is."""
    command = [sys.executable, "-m", "local.histories.mutants", "--plant", fault]
    command += ["--first", str(seeds.start), "--seeds", str(len(seeds))]
    ran = subprocess.run(command, input=json.dumps(known), capture_output=True, text=True, cwd=ROOT)
    if ran.returncode == -signal.SIGXCPU:
        return {str(seeds.stop - 1): [f"takes more than {MUTANT_S} s"]}
    if ran.returncode:
        raise RuntimeError(f"{fault}: {ran.stderr[-2_000:]}")
    found: Findings = json.loads(ran.stdout)
    print(f"{fault or PRODUCT}: {found or 'nothing found'}", flush=True)
    return found


def main() -> int:
    """Try the product as it is, and with each fault."""
    parser = argparse.ArgumentParser(prog="python -m local.histories.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="most stories for each fault")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="a part of the name of the faults to try")
    parser.add_argument("--plant", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.plant is not None:
        return _in_this_process(arguments.plant, seeds)
    chosen = [each.fault for each in MUTANTS if arguments.only in each.fault]
    known = tried(seeds, {}, "")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(chosen, pool.map(partial(tried, seeds, known), chosen), strict=True))
    first = {
        fault: (int(seed) - seeds.start + 1, kinds)
        for fault, each in results.items()
        for seed, kinds in each.items()
    }
    missed = ", ".join(each for each in chosen if each not in first)
    note = f"of {len(chosen)}, in up to {len(seeds)} histories; not found: {missed or 'none'}"
    figures = [
        Figure("found", len(first), "faults", min(REQUIRED, len(chosen)), note=note),
        *(
            Figure(fault, number, "histories", higher_is_better=False, note=", ".join(kinds))
            for fault, (number, kinds) in first.items()
        ),
    ]
    command = f"python -m local.histories.mutants {' '.join(sys.argv[1:])}"
    write("histories_mutants", figures, command, "histories up to the first finding", ROOT / "build/chaos")
    return 0 if figures[0].met else 1


def _in_this_process(fault: str, seeds: range) -> int:
    """Run the stories with `fault`, and print the findings; standard input has those of the product."""
    resource.setrlimit(resource.RLIMIT_CPU, (MUTANT_S, MUTANT_S + 1))
    sys.meta_path[:0] = [Planted(each) for each in MUTANTS if each.fault == fault]
    print(json.dumps(run(seeds, json.load(sys.stdin), is_planted=bool(fault))), file=sys.__stdout__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
