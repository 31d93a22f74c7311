"""Options that the operator's commands share."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from contract.loader import CONTRACT_FILE, load_any
from eventplane.contract import Contract
from eventplane.resource_names import archive_bucket
from operations.archive import Archive, BucketArchive, Days, FolderArchive
from operations.cloud import Cloud
from operations.command import say
from operations.errors import ChoiceError

_S3: Final = "s3://"


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Which environment."""
    environment = os.environ.get("EVENTPLANE_ENV", "dev")
    parser.add_argument(
        "--env", default=environment, metavar="NAME", help="the environment, now: %(default)s"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """In which form."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Which environment, by which contract, in which form."""
    add_environment(parser)
    parser.add_argument(
        "--contract",
        type=Path,
        default=CONTRACT_FILE,
        metavar="FILE",
        help="the deployed contract, YAML or compiled; default: this checkout's",
    )
    add_json(parser)


def add_days(parser: argparse.ArgumentParser) -> None:
    """Which part of which archive."""
    today = datetime.now(UTC).date()
    parser.add_argument(
        "--from",
        dest="first",
        type=date.fromisoformat,
        default=today - timedelta(days=1),
        metavar="DATE",
        help="first day of the archive that is read (UTC, by the hour of writing), now: %(default)s",
    )
    parser.add_argument(
        "--to",
        dest="last",
        type=date.fromisoformat,
        default=today,
        metavar="DATE",
        help="last day, now: %(default)s",
    )
    add_archive(parser)


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Which archive."""
    parser.add_argument(
        "--archive",
        metavar="PLACE",
        help="s3://BUCKET, or a folder with a copy; default: the environment's bucket",
    )


def contract_of(options: argparse.Namespace) -> Contract:
    """The contract that is named. Raises `ContractError`."""
    return load_any(options.contract)


def days_of(options: argparse.Namespace, cloud: Cloud | None) -> Days:
    """The part of the archive that is named. Raises `ArchiveMissingError`, `ChoiceError`."""
    if options.first > options.last:
        raise ChoiceError(f"no day is from {options.first} to {options.last}; name the earlier one by --from")
    return Days(archive_of(options, cloud), options.first, options.last)


def say_damaged(days: Days) -> None:
    """Tell the person what of the archive could not be read; known once all of it was taken."""
    for name, problem in days.damaged.items():
        say(f"{name} could not be read to its end: {problem}")


def is_folder(place: str | None) -> bool:
    """Whether the archive at `place` is a folder on this machine."""
    return place is not None and not place.startswith(_S3)


def archive_of(options: argparse.Namespace, cloud: Cloud | None) -> Archive:
    """The archive that is named. Raises `ArchiveMissingError`."""
    place: str | None = options.archive
    if place is not None and is_folder(place):
        return FolderArchive(Path(place))
    if cloud is None:
        raise AssertionError("a bucket needs a cloud")
    bucket = place.removeprefix(_S3) if place else archive_bucket(options.env, cloud.account, cloud.region)
    return BucketArchive(cloud.s3, bucket.rstrip("/"))
