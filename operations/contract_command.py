"""`eventplane contract VERB`: read, check, compare, draw and publish the contract."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from contract.acl import acl
from contract.checks import check
from contract.diagram import diagram
from contract.diff import diff, diff_text
from contract.loader import load_checked, load_contract
from contract.summary import summary, warnings_text
from eventplane.contract import Contract, ContractError
from operations import explain_command, map_command, prove_command, rehearse_command, rollout_options
from operations.command import (
    DONE,
    FAILED,
    ChoiceError,
    add_contract,
    add_verbs,
    contract_file,
    contract_of,
    present,
    say,
)
from parts import load

_NO_IMAGE: Final = (
    "it was not compared with the contract of any device's image (--image FILE); "
    "devices refuse one that takes their alarms away"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    checking = verb("check", _check, "check the contract, print a summary and the warnings")
    compiling = verb(
        "compile", _check, "check the contract, and write the file that devices and functions read"
    )
    compiling.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the compiled contract's file"
    )
    explaining = verb("explain", explain_command.run, "show who receives an event, by which routes, and why")
    explain_command.arguments(explaining)
    comparing = verb("diff", _diff, "show what changed against another version")
    comparing.add_argument(
        "other", type=Path, metavar="FILE", help="the earlier version, YAML or compiled (.json)"
    )
    drawing = verb("diagram", _diagram, "draw the plane as a mermaid flowchart")
    listing = verb("catalogue", _catalogue, "write the event catalogue, a page for people")
    listing.add_argument(
        "--output", type=Path, metavar="FILE", default=Path("build/catalogue.html"), help="the page's file"
    )
    flooring = verb(
        "floor", _floor, "check that devices with an image would accept it, and keep their alarms"
    )
    flooring.add_argument(
        "image", type=Path, metavar="IMAGE", help="the contract in the image, YAML or compiled (.json)"
    )
    proving = verb(
        "prove", prove_command.run, "prove that each alarm has a reader, or find one that has none"
    )
    prove_command.arguments(proving)
    trying = load("simulate", "command")
    trying.arguments(
        verb("simulate", trying.run, "try a contract under traffic and weather, before it is deployed")
    )
    rehearsing = verb(
        "rehearse", rehearse_command.run, "show what a new contract changes for the events of an archived day"
    )
    rehearse_command.arguments(rehearsing)
    rolling = verb("rollout", _rollout, "put it into force by stages, and go back at harm")
    rollout_options.arguments(rolling)
    mapping = verb("map", map_command.run, "show which event a message of a mapped program becomes")
    map_command.arguments(mapping)
    allowing = verb("acl", _acl, "write an access file for the home's Mosquitto")
    describing = verb("schema", _schema, "print the JSON Schema of the contract's file, for editors")
    describing.description = (
        "Print the JSON Schema of the contract's file. An editor completes and checks by it: write it into a "
        "FILE beside the contract, and `# yaml-language-server: $schema=FILE` into the contract's first line."
    )
    exporting = verb("asyncapi", _asyncapi, "print the contract as an AsyncAPI 3.0 document")
    exporting.add_argument(
        "--participant",
        action="append",
        default=[],
        metavar="NAME",
        help="only this participant; may be repeated",
    )
    publishing = verb("publish", _publish, "put the contract into force without a deployment")
    publishing.add_argument(
        "--image",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="refuse a contract that takes alarms away from devices with this image; may be repeated",
    )
    publishing.add_argument("--dry-run", action="store_true", help="only check it against what is deployed")
    publishing.add_argument("--withdraw", action="store_true", help="go back to the deployed contract")
    for each in (
        checking,
        compiling,
        comparing,
        drawing,
        listing,
        flooring,
        allowing,
        exporting,
        publishing,
    ):
        add_contract(each)


def _check(options: argparse.Namespace) -> int:
    try:
        contract, unread = load_checked(contract_file(options))
    except ContractError as error:
        # All of them: this is the command that finds them.
        say(str(error) if len(error.problems) > 1 else error.line)
        return FAILED
    if getattr(options, "output", None):
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_bytes(contract.canonical)
    warnings = (*check(contract), *unread)
    document = {**_names(contract), "warnings": [asdict(each) for each in warnings]}
    present(options, document, "\n".join(filter(None, [summary(contract), warnings_text(warnings)])))
    return DONE


def _diagram(options: argparse.Namespace) -> int:
    drawn = diagram(contract_of(options))
    present(options, {"mermaid": drawn}, drawn)
    return DONE


def _catalogue(options: argparse.Namespace) -> int:
    # Only here: the other commands need no templates.
    from contract.catalogue import catalogue

    page = catalogue(contract_of(options))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page, encoding="utf-8")
    present(options, {"page": str(options.output)}, str(options.output))
    return DONE


def _diff(options: argparse.Namespace) -> int:
    new, old = contract_of(options), load_contract(options.other)
    changes = [asdict(each) for each in diff(old, new)]
    present(options, {"from": old.version, "to": new.version, "changes": changes}, diff_text(old, new))
    return DONE


def _acl(options: argparse.Namespace) -> int:
    file = acl(contract_of(options))
    present(options, {"acl": file}, file)
    return DONE


def _asyncapi(options: argparse.Namespace) -> int:
    from contract.asyncapi import asyncapi

    contract = contract_of(options)
    for each in options.participant:
        if each not in contract.participants:
            raise ChoiceError(
                f"no participant is called {each}; name one of: {', '.join(contract.participants)}"
            )
    document = asyncapi(contract, options.participant)
    present(options, document, json.dumps(document, indent=2, ensure_ascii=False))
    return DONE


def _schema(options: argparse.Namespace) -> int:
    from contract.schema import contract_schema

    document = contract_schema()
    present(options, document, json.dumps(document, indent=2))
    return DONE


def _floor(options: argparse.Namespace) -> int:
    from contract.publish import check_floor

    image, contract = load_contract(options.image), contract_of(options)
    check_floor(image, contract)
    done = f"devices with the contract {image.version} take {contract.version}: it keeps all their alarms"
    present(options, {"image": image.version, "contract": contract.version, "taken": True}, done)
    return DONE


def _rollout(options: argparse.Namespace) -> int:
    # Only here: the other commands need no AWS.
    from operations import rollout_command

    return rollout_command.run(options)


def _publish(options: argparse.Namespace) -> int:
    # Only here: the other commands need no AWS.
    from contract.publish import ContractPublisher, check_floor, find_deployment
    from operations.cloud import enter
    from operations.system import now

    contract = contract_of(options)
    for each in options.image:
        check_floor(load_contract(each), contract)
    cloud = enter(options.env)
    publisher = ContractPublisher(find_deployment(options.env, cloud.client), cloud.tables, now)
    document = {"environment": options.env, "version": contract.version}
    if options.withdraw:
        publisher.withdraw()
        document = {"environment": options.env, "state": "withdrawn"}
        done = f"{options.env}: the deployed contract is in force again"
    elif options.dry_run:
        publisher.check(contract)
        document["state"] = "checked"
        done = f"{options.env}: {contract.version} can be published"
    else:
        publisher.publish(contract)
        document["state"] = "in force"
        done = (
            f"{options.env}: {contract.version} is in force; the routers follow within their refresh interval"
        )
        done += "" if options.image else f"\n{_NO_IMAGE}"
    present(options, document, done)
    return DONE


def _names(contract: Contract) -> dict[str, str]:
    return {"name": contract.name, "version": contract.version}
