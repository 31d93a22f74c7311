"""The job: `--INPUT <archive> --SOURCE <prefix> [--CLIENT <id>] [--DRY_RUN true]`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eventplane.archive_layout import ERASURES
from eventplane.errors import EventPlaneError
from eventplane.ledger import CONTRACTS
from glue_jobs.common.archive import Archive
from glue_jobs.common.attestation import add_attest_option, add_key_option, attest_old, open_key
from glue_jobs.common.objects import Objects, OldVersions, Stored, open_archive
from glue_jobs.common.session import job_session
from glue_jobs.erasure.person import Person, TooWideError, naming
from glue_jobs.erasure.portions import Portion, Progress, clear_staging, document_text, documents, portions

_SHOWN = 5


class LeftOverError(EventPlaneError):
    """After the erasure the objects `names` still name the person; `damaged` ones could not be searched."""

    names: Sequence[str]
    damaged: Sequence[str] = ()
    message = "{problems}"

    @property
    def problems(self) -> str:
        """What is left, and what to do about each kind."""
        problems = []
        if self.names:
            problems.append(
                f"{len(self.names)} objects still name the person: {_shown(self.names)}; if something writes "
                "them (a restore, a copy), end it and run the erasure again; else delete them by hand, with "
                "all versions"
            )
        if self.damaged:
            problems.append(
                f"{len(self.damaged)} objects are damaged and cannot be searched: {_shown(self.damaged)}; "
                "restore their old versions or delete them by hand, with all versions, and run the erasure "
                "again"
            )
        return "; ".join(problems)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Job parameters. `archive` is a URI or a local folder, `key` what `open_key` takes.

    `attests_old` is whether receipts of erasures that are not attested become so first.
    """

    archive: str
    person: Person
    is_dry_run: bool
    key: str | None = None
    attests_old: bool = False


def read_arguments(argv: Sequence[str]) -> Arguments:
    """Return the job's parameters; Glue adds some of its own, which are ignored. Raises `TooWideError`."""
    parser = argparse.ArgumentParser(
        prog="python -m glue_jobs.erasure",
        description="Remove a person's events from an archive.",
        allow_abbrev=False,
    )
    parser.add_argument("--INPUT", required=True, help="the archive: a folder or s3://bucket/")
    parser.add_argument("--SOURCE", required=True, help="what the sources of the person's events begin with")
    parser.add_argument("--CLIENT", default=None, help="the client id of the person's device")
    parser.add_argument(
        "--DRY_RUN", choices=("true", "false"), default="false", help="'true' counts and changes nothing"
    )
    add_key_option(parser)
    add_attest_option(parser)
    known, _ = parser.parse_known_args(argv)
    person = Person(known.SOURCE, known.CLIENT)
    options = known.DRY_RUN == "true", known.ATTESTATION_KEY, known.ATTEST == "true"
    return Arguments(known.INPUT, person, *options)


def main(argv: Sequence[str], now: datetime | None = None) -> dict[str, Any]:
    """Remove the person's rows, prove that they are gone, and return the receipt. Raises `LeftOverError`."""
    now = now or datetime.now(UTC)
    arguments = read_arguments(argv)
    objects, key = open_archive(arguments.archive), open_key(arguments.key)
    if arguments.attests_old:
        names = (each.name for each in objects.beneath(ERASURES) if each.name.endswith(".json"))
        attest_old(objects, key, names, int(1_000 * now.timestamp()))
    spark = job_session()
    person = arguments.person
    _refuse_names_of_the_contract(objects, person)
    if arguments.is_dry_run:
        rows = {
            name: count for _, each, _ in _found(spark, objects, person, now) for name, count in each.items()
        }
        seen = Progress(key, person, rows, [each.name for each in _named(objects, person)])
        return {**seen.receipt(now, OldVersions(0, 0)), "dry_run": True}
    progress = Progress.resumed(objects, key, person)
    damaged: list[str] = []
    for portion, rows, faulty in _found(spark, objects, person, now):
        damaged += faulty
        if rows:
            mine = portion.only(rows)
            progress.note(objects, {each: rows[each.name] for each in mine.stored})
            mine.rewrite(spark, objects, person)
            progress.settle(objects)
    if named := _named(objects, person):
        # The next audit writes them again, without the person.
        progress.note(objects, {}, named)
        objects.delete(each.name for each in named)
        progress.settle(objects)
    clear_staging(objects)
    left = naming(spark, objects, person, now, damaged)
    contracts = [name for name in left if name.startswith(f"{CONTRACTS}/")]
    if damaged or len(left) > len(contracts):
        raise LeftOverError(tuple(name for name in left if name not in contracts), tuple(damaged))
    versions = OldVersions.sum(objects.delete_old_versions(prefix) for prefix in progress.old_versions())
    receipt = {**progress.receipt(now, versions), "contracts": contracts}
    progress.finish(objects, receipt)
    return receipt


def _found(
    spark: SparkSession, objects: Objects, person: Person, now: datetime
) -> Iterator[tuple[Portion, dict[str, int], list[str]]]:
    """Return each portion, the number of the person's rows by object, and which objects are damaged."""
    for portion in portions(objects, now):
        damaged: list[str] = []
        try:
            rows = portion.found(spark, objects, person)
        except (PySparkException, Py4JError):
            damaged = [each.name for each in Archive(spark, objects).damage(portion.stored)]
            if not damaged:
                raise
            whole = {each.name for each in portion.stored} - {*damaged}
            rows = portion.only(whole).found(spark, objects, person)
        yield portion, rows, damaged


def _refuse_names_of_the_contract(objects: Objects, person: Person) -> None:
    """Raise `TooWideError` for a name that stands in everybody's rows, because the contract uses it."""
    for each in objects.beneath(CONTRACTS):
        contract = json.loads(objects.read(each.name) or b"{}")
        sections = (contract.get(name, ()) for name in ("participants", "event_types", "routes"))
        words = {word for section in sections for name in section for word in (name, *name.split("."))}
        for name in person.names:
            if name in words:
                raise TooWideError("--CLIENT" if name == person.client else "--SOURCE", name)


def _named(objects: Objects, person: Person) -> list[Stored]:
    return [each for each in documents(objects) if person.is_named_in(document_text(objects, each.name))]


def totals_line(receipt: dict[str, Any]) -> str:
    """One line of JSON, by which the log's readers know what was removed."""
    totals = {"rows": sum(receipt["rows"].values()), "old_versions": receipt["old_versions"]}
    totals["locked_versions"] = receipt["locked_versions"]
    return json.dumps({"erasure_totals": totals, "pseudonym": receipt["pseudonym"]}) + "\n"


if __name__ == "__main__":
    sys.stdout.write(totals_line(main(sys.argv[1:])))
