"""`eventplane contract rollout`: a new contract by stages, which stops at harm and goes back by itself."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contract.loader import load_contract
from contract.proof import ProofOutcome, prove
from contract.publish import PublishError, check_floor, find_deployment
from contract.rollout import ContractRollout, RolloutPhase, StageLimits, stages_of, worse
from eventplane.contract import Contract, ContractError, load_compiled
from eventplane.contract.publication import ContractTable
from eventplane.device_record import FLEET_TABLE, REGISTRY
from eventplane.envelope import Envelope
from eventplane.ledger import CONTRACTS
from eventplane.records import Records
from eventplane.resource_names import resource_name
from operations import system, text
from operations.archive import Archive, archive_of, body_of
from operations.audit_command import audited
from operations.cloud import Cloud, enter
from operations.command import (
    DONE,
    END_UNKNOWN,
    FAILED,
    ChoiceError,
    present,
    say,
    shell_line,
)
from operations.desired import desired_items
from operations.rehearse_command import NothingToRehearseError, NotInArchiveError, rehearsed
from operations.rollout import MOST_FOUND, LessPromisedError, NoRolloutError, RolloutPlane, RolloutRunner
from operations.rollout_options import GO_BACK, STATUS

LOOK_S: Final = 15.0
"""Between two looks with --watch, seconds. Ours: the archive is a minute behind anyway."""

RETRIED_S: Final = 3_600.0
"""How long a step that fails is tried again with --watch, seconds. Ours: as long as an alarm is."""

_PUT_S: Final = 30.0


class HarmfulError(PublishError):
    """A contract takes alarms from their readers: `problem`, by its filters."""

    problem: str
    message = "nothing was begun, as the contract is worse for alarms: {problem}"


class FormerMissingError(PublishError):
    """The contract in force, `version`, is in no place that the command can read."""

    version: str
    message = "the contract in force, {version}, is not in the archive; name its file by --old"


def run(options: argparse.Namespace) -> int:
    """Begin a roll-out, go on with it, show it or end it; return how it stands."""
    cloud = enter(options.env)
    with ExitStack() as stack:
        archive = archive_of(options, cloud)
        runner = RolloutRunner(_plane(options, cloud, archive, stack))
        if options.what == STATUS:
            rollout = runner.found()
            if rollout is None:
                raise NoRolloutError
        elif options.what == GO_BACK:
            rollout = runner.go_back("a person went back", is_final=options.final)
            rollout = _watched(options, rollout, runner.step)
        else:
            rollout = _begun(options, cloud, runner, archive)
            rollout = _watched(options, runner.proceed() if options.proceed else rollout, runner.step)
    present(options, document(rollout), "\n".join(lines(rollout, _typed(options))))
    return {RolloutPhase.DONE: DONE, RolloutPhase.WENT_BACK: FAILED, RolloutPhase.GOING_BACK: FAILED}.get(
        rollout.phase, END_UNKNOWN
    )


def _watched(
    options: argparse.Namespace, rollout: ContractRollout, step: Callable[[], ContractRollout]
) -> ContractRollout:
    """Take a step, and with --watch all of them; report each change."""
    told, failing_since = "", None
    while not rollout.phase.is_over:
        try:
            rollout = step()
        except (BotoCoreError, ClientError) as error:
            # Nobody may be there to type it again, and devices would keep a contract that does harm.
            failing_since = failing_since or system.monotonic()
            if not options.watch or system.monotonic() - failing_since > RETRIED_S:
                raise
            say(f"{system.now():%H:%M:%S} tried again in {LOOK_S:.0f} s: {error}")
            system.sleep(LOOK_S)
            continue
        failing_since = None
        now = "; ".join(lines(rollout, _typed(options))[:2])
        if now != told:
            say(f"{system.now():%H:%M:%S} {now}")
            told = now
        if not options.watch or rollout.phase is RolloutPhase.UNPROVEN:
            break
        if not rollout.phase.is_over:
            system.sleep(LOOK_S)
    return rollout


def _plane(options: argparse.Namespace, cloud: Cloud, archive: Archive, stack: ExitStack) -> RolloutPlane:
    clients: dict[str, Any] = {}

    def send(sender: str, event: Envelope) -> None:
        # Only here: what shows a roll-out needs no client library.
        from eventplane_client import ClientSettings, Mode, connect

        if sender not in clients:
            settings = ClientSettings(f"sqs:{options.env}", sender, state="memory:", mode=Mode.AT_LEAST_ONCE)
            clients[sender] = stack.enter_context(connect(settings))
        clients[sender].put(event, _PUT_S)

    def audit() -> Any:
        return None if options.no_audit else audited(cloud, options.env, f"{system.now():%Y-%m-%d}")

    return RolloutPlane(
        deployment=find_deployment(options.env, cloud.client),
        tables=cloud.tables,
        fleet=Records(cloud.tables, resource_name(options.env, FLEET_TABLE), REGISTRY).all,
        desired=desired_items(cloud, options.env),
        archive=archive,
        send=send,
        audit=audit,
        now=system.now,
    )


def _begun(
    options: argparse.Namespace, cloud: Cloud, runner: RolloutRunner, archive: Archive
) -> ContractRollout:
    file = Path(options.what)
    if not file.exists():
        raise ChoiceError(f"{file} is no file; name the new contract, {STATUS} or {GO_BACK}")
    new = load_contract(file)
    stages = stages_of(options.groups, options.shares)
    limits = StageLimits(
        watch_s=round(60 * options.minutes),
        events=options.events,
        alarms=options.alarms,
        limit_s=round(3_600 * options.hours),
        silent_s=round(60 * options.silent),
        accepted=tuple(options.accept),
    )
    found = runner.found()
    former = new
    judged_by = ""
    if found is None or found.phase.is_over:
        former = _former(options, runner, cloud, archive)
        judged_by = _checked(options, limits, former, new)
    return runner.start(new, former, judged_by, stages, limits)


def _former(options: argparse.Namespace, runner: RolloutRunner, cloud: Cloud, archive: Archive) -> Contract:
    """Return the contract in force. Raises `FormerMissingError`."""
    deployment, head = runner.plane.deployment, runner.head()
    version = head.version if head else deployment.base
    if options.old and (named := load_contract(options.old)).version == version:
        return named
    try:
        return ContractTable(cloud.tables, deployment.table).contract(version)
    except ContractError:
        archived = body_of(archive, f"{CONTRACTS}/{version}.json")
    if archived is None:
        raise FormerMissingError(version)
    return load_compiled(archived, version)


def _checked(options: argparse.Namespace, limits: StageLimits, former: Contract, new: Contract) -> str:
    """Check a contract: by images and by proof for alarms, on yesterday and today for all events.

    Return the version by which today was judged, with what participants subscribed; '' where no day was.
    Raises `AlarmFloorError`, `HarmfulError`, `LessPromisedError`.
    """
    for each in options.image:
        check_floor(load_contract(each), new)
    open_before = {(each.alarm, each.sender) for each in prove(former) if each.outcome != ProofOutcome.PROVEN}
    for proof in prove(new, [former]):
        if proof.outcome is ProofOutcome.COUNTER_EXAMPLE and (proof.alarm, proof.sender) not in open_before:
            event = json.dumps(proof.event, ensure_ascii=False)
            raise HarmfulError(f"{proof.alarm} from {proof.sender}: {proof.reason}, such as {event}")
    judged_by, today = "", system.now().date()
    for day in (today - timedelta(days=1), today):
        given = argparse.Namespace(**vars(options) | {"date": day, "old": None, "jobs": os.cpu_count() or 1})
        try:
            old, tally, _ = rehearsed(given, new, former)
        except (NothingToRehearseError, NotInArchiveError) as error:
            say(f"not rehearsed: {error}")
            continue
        if found := limits.refused(worse(tally)):
            raise LessPromisedError(found)
        judged_by = old.version
    return judged_by


def document(rollout: ContractRollout) -> dict[str, Any]:
    """Return a roll-out as JSON."""
    found = asdict(rollout)
    del found["revision"]
    for name, member in (("began_ms", "began"), ("stage_ms", "stage_began"), ("looked_ms", "looked")):
        at_ms = found.pop(name)
        found[member] = text.moment(at_ms) if at_ms else None
    return {**found, "phase": rollout.phase.value, "at": rollout.stages[rollout.stage]}


def _typed(options: argparse.Namespace) -> Callable[..., str]:
    """Return what gives the line to type for words of this command."""
    new = "NEW" if options.what in (STATUS, GO_BACK) else options.what
    return lambda *words: shell_line(
        options, "contract", "rollout", *(new if each == "NEW" else each for each in words)
    )


def lines(rollout: ContractRollout, typed: Callable[..., str]) -> list[str]:
    """Return how a roll-out stands, in lines for people: first what changes, last what to type."""
    at = f"stage {rollout.stage + 1} of {len(rollout.stages)} ({rollout.stages[rollout.stage]})"
    head = f"{rollout.version} in place of {rollout.former}: {rollout.phase}, {at}"
    seen = [
        f"of {rollout.devices} devices {rollout.stored} have stored it, {rollout.following} follow it",
        f"under it came {rollout.events:,} events, {rollout.alarms:,} of them alarms",
    ]
    why = [f"  {each}" for each in rollout.why[:MOST_FOUND]]
    if len(rollout.why) > MOST_FOUND:
        why.append(f"  and {len(rollout.why) - MOST_FOUND} more; --json has all")
    match rollout.phase:
        case RolloutPhase.WATCHING:
            lacks = [f"  lacks {each}" for each in rollout.lacked]
            return [head, *seen, *lacks, f"go on: {typed('NEW', '--watch')}"]
        case RolloutPhase.UNPROVEN:
            person = f"let it pass: {typed('NEW', '--proceed', '--watch')}; or go back: {typed(GO_BACK)}"
            return [head, *seen, *(f"  lacks {each.strip()}" for each in why), person]
        case RolloutPhase.GOING_BACK:
            left = f"{rollout.stored} devices still have it"
            return [head, left, *why, f"go on: {typed(GO_BACK, '--watch')}"]
        case RolloutPhase.WENT_BACK:
            return [head, "all devices follow what they followed before", *why]
        case RolloutPhase.DONE:
            return [head, *seen, "it is in force for all; a device that was away gets it when it connects"]
