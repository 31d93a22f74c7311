"""`eventplane smoke`: prove that a deployed environment works, with a throw-away device."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from operations import system
from operations.cloud import enter
from operations.command import DONE, FAILED, add_contract, contract_of, positive, present, say
from operations.patience import Patience
from parts.probe.connection import MQTT_PORT
from parts.probe.control import Interrupts, Removals, Requests
from parts.probe.plane import find_plane
from parts.probe.result import RunReport, StepResult, StepStatus
from parts.probe.run import Choices, SmokeRun
from parts.probe.throwaway import device_endpoint

TIMEOUT_S = 600.0
"""How long a step waits by default, seconds: the ledger's writer gathers for minutes."""

AUDIT_TIMEOUT_S = 3_600.0
"""How long the audit may take by default, seconds: in a large fleet it reads a day of all devices."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Prove that a deployed environment works, with a throw-away device."
    parser.epilog = "Exit status 0 when every step passed and everything was removed, otherwise 1."
    parser.set_defaults(run=_smoke)
    add_contract(parser)
    parser.add_argument(
        "--device-endpoint",
        default=os.environ.get("EVENTPLANE_DEVICE_ENDPOINT") or None,
        metavar="HOST[:PORT]",
        help=f"where devices connect (EVENTPLANE_DEVICE_ENDPOINT); default: the plane's, port {MQTT_PORT}",
    )
    authorities = os.environ.get("EVENTPLANE_DEVICE_CA")
    parser.add_argument(
        "--device-ca",
        type=Path,
        default=Path(authorities) if authorities else None,
        metavar="FILE",
        help="authorities that devices trust, PEM (EVENTPLANE_DEVICE_CA); default: those of the AWS SDK",
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        default=TIMEOUT_S,
        metavar="S",
        help="seconds for each step; default: %(default)s",
    )
    parser.add_argument(
        "--audit-timeout",
        type=positive,
        default=AUDIT_TIMEOUT_S,
        metavar="S",
        help="seconds for the audit; default: %(default)s",
    )
    parser.add_argument(
        "--people-are-informed",
        action="store_true",
        help="needed where data is kept: the test raises an alarm of a home called smoke-..., and notifies "
        "who is on call",
    )


def _smoke(options: argparse.Namespace) -> int:
    contract, cloud = contract_of(options), enter(options.env)
    requests = Requests(cloud.session)
    account = cloud.account
    plane = find_plane(cloud, options.env, contract)
    choices = Choices(
        endpoint=device_endpoint(
            cloud, options.device_endpoint or plane.outputs.get("DeviceEndpoint"), options.device_ca
        ),
        people_are_informed=options.people_are_informed,
        patience=Patience(options.timeout),
        audit_patience=Patience(options.audit_timeout),
    )
    interrupts, removals = Interrupts(), Removals()
    name = f"smoke-{system.random_bytes(6).hex()}"
    results: list[StepResult] = []

    def report(result: StepResult) -> None:
        results.append(result)
        say(f"{result.name}: {result.status.value}")

    with interrupts.taken(), tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        smoke = SmokeRun(
            name, plane, choices, Path(folder), removals, requests=requests, held=interrupts.held
        )
        try:
            smoke.run(report)
        except KeyboardInterrupt:
            # What had passed by then is no pass of the whole.
            results += [
                StepResult(each.name, StepStatus.NOT_RUN, "stopped") for each in smoke.steps[len(results) :]
            ]
            say("stopped; removing what the test has made")
        finally:
            # Also after a fault of this command.
            interrupts.start_removing()
            removed = list(removals.run())
    if any(each.words.startswith("device ") for each in removed):
        smoke.kept.append(
            f"one small item of {name} in the presence table: without it the end of its "
            "connection, reported later, would be reported to carers"
        )
        smoke.kept.append("its rows in the archive, which is only ever added to")
    result = RunReport(name, options.env, account, cloud.region, results, removed, smoke.kept)
    present(options, result.document(), result.text())
    return DONE if result.is_passed else FAILED
