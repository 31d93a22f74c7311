"""Work that simulated programs share, since they are one process: nothing of it changes what they do.

Each home and function of a history, and each history, reads and checks the same few contracts, and what does
not depend on a program is computed once. What reads ahead in threads reads at once, and no timer of the CPU
is set: both are the machine's, which is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, TypeVar

import eventplane.contract
from edge import contract_updates, sent_contract
from eventplane.contract import Contract, ContractError, check_compiled, load_compiled, publication
from eventplane.contract import subscription as subscriptions
from glue_jobs.common import system as jobs
from glue_jobs.delivery_audit import contracts as audited
from lambdas.router import payload
from operations import home_steps
from operations import system as commands

T = TypeVar("T")

MOST: Final = 512
"""Contracts that are kept: a history has some ten, and many histories have the same."""


class AtOnce(Executor):
    """An executor without threads."""

    def __init__(self, _size: int) -> None: ...

    def submit(self, call: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(call(*given, **named))
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            future.set_exception(error)
        return future


_contract = lru_cache(MOST)(load_compiled)


def _loaded(compiled: bytes | str, origin: str = "compiled contract") -> Contract:
    try:
        return _contract(compiled)
    except ContractError:
        return load_compiled(compiled, origin)  # whose error names the origin


@lru_cache(MOST)
def _is_checked(contract: Contract) -> bool:
    check_compiled(contract, "")
    return True


def _check(contract: Contract, origin: str) -> None:
    try:
        _is_checked(contract)
    except ContractError:
        check_compiled(contract, origin)


_SHARED: Final[tuple[tuple[ModuleType, str, object], ...]] = (
    *((each, "load_compiled", _loaded) for each in (contract_updates, sent_contract, publication)),
    *((each, name, _loaded) for each, name in ((home_steps, "_contract"), (audited, "_compiled"))),
    (eventplane.contract, "check_compiled", _check),
    (subscriptions, "_compiled", lru_cache(MOST)(subscriptions._compiled.__wrapped__)),  # noqa: SLF001
    *((each, "pool", AtOnce) for each in (jobs, commands)),
    (payload, "cpu_limit", lambda _seconds: nullcontext()),
)


@contextmanager
def shared() -> Iterator[None]:
    """Let the programs that run in the block share what they can."""
    before = [(module, name, getattr(module, name)) for module, name, _ in _SHARED]
    for module, name, instead in _SHARED:
        setattr(module, name, instead)
    try:
        yield
    finally:
        for module, name, own in before:
            setattr(module, name, own)
