"""`python -m contract [FILE] [--output COMPILED]`: check a contract, show it, write its compiled form."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contract.loader import CONTRACT_FILE, load_contract
from eventplane.contract import Contract, ContractError


def main() -> int:
    """Exit status 0 for a good contract, 1 for one with problems."""
    parser = argparse.ArgumentParser(prog="python -m contract", description="Check and compile a contract.")
    parser.add_argument("file", nargs="?", type=Path, default=CONTRACT_FILE)
    parser.add_argument("--output", type=Path, help="write the compiled contract to this file")
    arguments = parser.parse_args()
    try:
        contract = load_contract(arguments.file)
    except ContractError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_bytes(contract.canonical)
    print(summary(contract))
    return 0


def summary(contract: Contract) -> str:
    """What the contract says, a line a participant and route."""
    lines = [f"{contract.name}, version {contract.version}"]
    lines += [
        f"  {each.kind:<15} {each.name:<18} {each.description}" for each in contract.participants.values()
    ]
    lines += [f"  route at {route.place:<6} {route.name} -> {route.destination}" for route in contract.routes]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
