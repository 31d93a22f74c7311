"""The job: `--INPUT <archive> --SOURCE <prefix> [--CLIENT <id>] [--DRY_RUN true]`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eventplane.archive_layout import ERASURES
from eventplane.downlink.addressing import ATTRIBUTES
from eventplane.errors import EventPlaneError
from eventplane.ledger import CONTRACTS
from glue_jobs.common import system
from glue_jobs.common.archive import Archive
from glue_jobs.common.attestation import add_attest_option, add_key_option, attest_old, open_key
from glue_jobs.common.objects import Objects, OldVersions, Stored, open_archive
from glue_jobs.common.session import job_session
from glue_jobs.erasure.person import Eraser, Person, Shared, TooWideError
from glue_jobs.erasure.portions import (
    Erased,
    Portion,
    Survey,
    clear_staging,
    document_text,
    documents,
    open_hours,
    portions,
    settle_all,
)
from glue_jobs.erasure.search import naming

_SHOWN = 5

_MEMBERS = frozenset({*ATTRIBUTES, "data", "data_base64", "inbox", "outbox", "application", "json"})
"""Words of every event and channel."""


class LeftOverError(EventPlaneError):
    """After the erasure the objects `names` still name the person; `damaged` ones could not be searched."""

    names: Sequence[str]
    damaged: Sequence[str] = ()
    message = "{problems}"

    @property
    def problems(self) -> str:
        """Return what is left, and what to do about each kind."""
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
class ErasureArgs:
    """Job parameters. `archive` is a URI or a local folder, `key` what `open_key` takes.

    `attests_old` is whether receipts of erasures that are not attested become so first.
    """

    archive: str
    person: Person
    is_dry_run: bool
    key: str | None = None
    attests_old: bool = False


def read_arguments(argv: Sequence[str]) -> ErasureArgs:
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
    return ErasureArgs(known.INPUT, person, *options)


def main(argv: Sequence[str], now: datetime | None = None) -> dict[str, Any]:
    """Erase the person, prove that no name is left, and return the receipt. Raises `LeftOverError`."""
    now = now or system.now()
    arguments = read_arguments(argv)
    objects, key = open_archive(arguments.archive), open_key(arguments.key)
    if arguments.attests_old:
        names = (each.name for each in objects.beneath(ERASURES) if each.name.endswith(".json"))
        attest_old(objects, key, names, int(1_000 * now.timestamp()))
    spark = job_session()
    person = arguments.person
    refuse_names_of_the_contract(objects, person)
    if not arguments.is_dry_run:
        settle_all(objects, key)
    progress = Erased.resumed(objects, key, person)
    job = _Job(spark, objects, now, Eraser(person, progress.shared))
    progress.shared = job.find_shared()
    if arguments.is_dry_run:
        seen = Erased(key, person, documents=[each.name for each in job.documents()])
        for survey in (open_hours(objects, now), *(each for _, each in job.portions())):
            seen.count(survey)
        return {**seen.receipt(now, OldVersions(0, 0)), "dry_run": True}
    progress.count(open_hours(objects, now))
    for portion, survey in job.portions():
        progress.count(survey)
        if changed := {*survey.rows, *survey.redacted}:
            portion.only(changed).rewrite(spark, objects, job.eraser, progress)
    if documents := job.documents():
        # The next audit writes them again, without the person.
        progress.note(objects, (), documents)
        objects.delete(each.name for each in documents)
        progress.settle(objects)
    clear_staging(objects)
    left = naming(spark, objects, Eraser(person), now, job.damaged)
    contracts = [name for name in left if name.startswith(f"{CONTRACTS}/")]
    if job.damaged or len(left) > len(contracts):
        raise LeftOverError(tuple(name for name in left if name not in contracts), tuple(job.damaged))
    versions = OldVersions.sum(objects.delete_old_versions(prefix) for prefix in progress.old_versions())
    receipt = {**progress.receipt(now, versions), "contracts": contracts}
    progress.finish(objects, receipt)
    return receipt


class _Job:
    """The search of an archive by an `eraser`; `damaged` are the objects that cannot be searched."""

    def __init__(self, spark: SparkSession, objects: Objects, now: datetime, eraser: Eraser) -> None:
        self.eraser = eraser
        self.damaged: list[str] = []
        self._spark = spark
        self._objects = objects
        self._now = now
        self._surveys: dict[Portion, Survey] = {}

    def find_shared(self) -> Shared:
        """Search everything until nothing more is known of what rows that stay share with the person's."""
        while True:
            found = reduce(Shared.and_, (each.shared for _, each in self.portions()), self.eraser.shared)
            if found == self.eraser.shared:
                return found
            self.eraser, self._surveys = replace(self.eraser, shared=found), {}

    def portions(self) -> Iterator[tuple[Portion, Survey]]:
        """Yield what there is now, with what is found in it; what has not changed is not searched again."""
        for portion in portions(self._objects, self._now):
            if portion not in self._surveys:
                self._surveys[portion] = self._survey(portion)
            yield portion, self._surveys[portion]

    def documents(self) -> list[Stored]:
        """Return the audit's documents that name the person."""
        names, objects = self.eraser.names, self._objects
        return [each for each in documents(objects) if names(document_text(objects, each.name))]

    def _survey(self, portion: Portion) -> Survey:
        try:
            return portion.survey(self._spark, self._objects, self.eraser)
        except (PySparkException, Py4JError):
            damaged = [each.name for each in Archive(self._spark, self._objects).damage(portion.stored)]
            if not damaged:
                raise
        self.damaged = [*dict.fromkeys([*self.damaged, *damaged])]
        whole = {each.name for each in portion.stored} - {*damaged}
        return portion.only(whole).survey(self._spark, self._objects, self.eraser)


def refuse_names_of_the_contract(objects: Objects, person: Person) -> None:
    """Raise `TooWideError` for a name in everybody's rows: of the contract, or of a member of events."""
    for each in objects.beneath(CONTRACTS):
        words = _words_of_contract(objects.read(each.name) or b"{}") | _MEMBERS
        for name in person.names:
            if name in words:
                raise TooWideError("--CLIENT" if name == person.client else "--SOURCE", name)


def _words_of_contract(body: bytes) -> set[str]:
    """Return the names in a contract and their parts; of what cannot be read as one, all that is quoted."""
    try:
        contract = json.loads(body)
        sections = [contract.get(name, ()) for name in ("participants", "event_types", "routes")]
        return {word for section in sections for name in section for word in (name, *name.split("."))}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return set(re.findall('"([^"]+)"', body.decode(errors="replace")))


def totals_line(receipt: dict[str, Any]) -> str:
    """One line of JSON, by which the log's readers know what was removed."""
    totals = {name: sum(receipt[name].values()) for name in ("rows", "redacted")}
    totals["may_remain"] = sum(each["rows"] for each in receipt["may_remain"])
    totals["old_versions"] = receipt["old_versions"]
    totals["locked_versions"] = receipt["locked_versions"]
    return json.dumps({"erasure_totals": totals, "pseudonym": receipt["pseudonym"]}) + "\n"


if __name__ == "__main__":
    sys.stdout.write(totals_line(main(sys.argv[1:])))
