"""Every place in the source that calls AWS through a client of boto3 or botocore."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.fakes.client import operations_of

ROOT: Final = Path(__file__).parents[2]

PACKAGES: Final = (
    "eventplane_aws",
    "eventplane_client",
    "lambdas",
    "glue_jobs",
    "operations",
    "parts",
    "contract",
    "stacks",
)

SERVICES: Final = (
    "cloudformation",
    "cloudwatch",
    "dynamodb",
    "glue",
    "iot",
    "iot-data",
    "kms",
    "lakeformation",
    "lambda",
    "organizations",
    "s3",
    "secretsmanager",
    "service-quotas",
    "sns",
    "sqs",
    "ssm",
    "sts",
)
"""The services that the product makes clients of."""

_TRANSFERS: Final = frozenset({"copy", "upload_file", "download_file", "upload_fileobj", "download_fileobj"})
"""Methods that boto3 adds to a client of S3: several requests in one call (`boto3.s3.inject`)."""

_PAGES: Final = frozenset({"get_paginator", "get_waiter"})


@dataclass(frozen=True, slots=True, order=True)
class CallSite:
    """The call of `operation` in `function` of `file`, on these lines."""

    file: str
    function: str
    operation: str
    first_line: int
    last_line: int

    @property
    def package(self) -> str:
        """The package whose clients it uses: of a module of a part that of the commands or functions."""
        package = self.file.partition("/")[0]
        if package != "parts":
            return package
        return "operations" if "\nfrom operations" in (ROOT / self.file).read_text() else "lambdas"

    @property
    def is_readers_receive(self) -> bool:
        """Whether what a lost answer had shows again when the visibility timeout of the request ends."""
        return (self.package, self.operation) == ("eventplane_client", "receive_message")

    def __str__(self) -> str:
        return f"{self.file} {self.function} {self.operation}"


_REPEATS: Final = {
    r"(get|list|describe|head|batch_get|verify|generate)_.*|query|scan": "the same answer",
    r"(put|delete)_item": "the writer's token, or nothing to delete: done",
    r"send_message.*|publish": "a copy, which readers and devices drop",
    r"receive_message": "messages that the queue shows again after their visibility timeout",
    r"start_.*|detect_.*": "what it started: adopted, or waited for",
    r"create_keys_and_certificate": "another certificate; the first one is inactive and stays",
    r"sign": "another signature, as good",
    r"invoke": "another run; its result counts",
    r"copy|put_object": "its own object",
    r".*": "nothing left to do",
}
"""What the repeat of a request that was done finds, by operation; the first pattern that fits counts."""


def meets(operation: str) -> str:
    """Return what a repeat of `operation` that was done finds."""
    return next(text for pattern, text in _REPEATS.items() if re.fullmatch(pattern, operation))


@cache
def _requests() -> dict[str, list[tuple[frozenset[str], bool]]]:
    """Return the members of a request, and whether some are required, by operation for each service."""
    found = dict[str, list[tuple[frozenset[str], bool]]]()
    for service in SERVICES:
        for operation, model in operations_of(service).items():
            shape = model.input_shape
            members = frozenset(shape.members) if shape else frozenset[str]()
            found.setdefault(operation, []).append((members, bool(shape and shape.required_members)))
    return found


@cache
def call_sites() -> tuple[CallSite, ...]:
    """Return the call sites of the product, by file and line."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return tuple(site for file in files for site in sites_in(file.read_text(), str(file.relative_to(ROOT))))


def sites_in(source: str, file: str) -> Iterator[CallSite]:
    """Yield the call sites in the `source` of `file`."""
    yield from _sites(ast.parse(source), file, ())


def _sites(node: ast.AST, file: str, within: tuple[str, ...]) -> Iterator[CallSite]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        within = (*within, node.name)
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        operation = _operation(node)
        children = [*ast.iter_child_nodes(node.func), *node.args, *node.keywords]
    else:  # a method that is called elsewhere
        operation = node.attr if isinstance(node, ast.Attribute) and "_" in node.attr else ""
    if operation in _requests() or operation in _TRANSFERS:
        yield CallSite(file, ".".join(within), operation, node.lineno, node.end_lineno)
    for child in children:
        yield from _sites(child, file, within)


def _operation(call: ast.Call) -> str:
    """Return the operation that a call of a client requests; '' for any other call.

    A client takes members of the request by name only, and no other method has such names.
    """
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = {each.arg for each in call.keywords}
    if name in _PAGES and isinstance(call.args[0], ast.Constant):
        return str(call.args[0].value)
    if name in _TRANSFERS:
        return name if given & {"ExtraArgs", "Bucket", "Config"} else ""
    if call.args:
        return ""
    fits = (
        given - {None} <= members and (given or not required)
        for members, required in _requests().get(name, ())
    )
    return name if any(fits) else ""
