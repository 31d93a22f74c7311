"""What all fake clients have from botocore: checked requests, paginators and exceptions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial, wraps
from types import SimpleNamespace
from typing import Any, ClassVar

from botocore import xform_name
from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel
from botocore.paginate import Paginator, PaginatorModel
from botocore.validate import validate_parameters

from lab.aws_requests import broken_rule, problem

REGION = "us-east-1"
ACCOUNT = "123456789012"
_SHAPES = {"AWS.SimpleQueueService.NonExistentQueue": "QueueDoesNotExist"}
"""Exceptions of the JSON protocol by the codes of the query protocol, which responses still have."""


class FakeClient:
    """A client of `service`, whose public methods are its operations, one at a time.

    A method gets the members of a request that is valid by botocore's model of the service. A client whose
    `checks` are off takes any request, of one thread at a time, which is faster.
    """

    service: ClassVar[str]
    checks = True

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if "service" in vars(cls) and callable(method) and name in operations_of(cls.service):
                setattr(cls, name, _checked(cls.service, name, method))

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.exceptions = _exceptions(self.service)
        self.meta = SimpleNamespace(region_name=REGION)

    def get_paginator(self, operation: str) -> Paginator:
        """As boto3's."""
        model = operations_of(self.service)[operation]
        return Paginator(getattr(self, operation), _paginators(self.service).get_paginator(model.name), model)

    def check(self, operation: str, request: dict[str, Any]) -> None:
        """Raise what boto3 raises for a request that is not valid by the service's model."""
        validate_parameters(request, operations_of(self.service)[operation].input_shape)

    def refusal(self, code: str, message: str, operation: str, **more: Any) -> ClientError:
        """The error that boto3 raises for AWS's `code`; `more` are members of the response."""
        kind: type[ClientError] = self.exceptions.from_code(_SHAPES.get(code, code))
        return kind({"Error": {"Code": code, "Message": message}, **more}, operation)


class ScriptedClient(FakeClient):
    """A client of `service` whose operations are methods of `script`, which may raise AWS's errors."""

    def __init__(self, service: str, script: Any) -> None:
        self.service = service  # type: ignore[misc]
        self._script = script
        super().__init__()

    def __getattr__(self, operation: str) -> Any:
        if operation.startswith("_") or operation not in operations_of(self.service):
            raise AttributeError(operation)
        return partial(self._ask, operation)

    def _ask(self, operation: str, **request: Any) -> Any:
        self.check(operation, request)
        try:
            return perform(self, operation, request, getattr(self._script, operation))
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            answered = error.response.get("ResponseMetadata", {})
            raise self.refusal(code, message, operation, ResponseMetadata=answered) from None


def _checked(service: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    operation = operations_of(service)[name].name

    @wraps(method)
    def answer(self: FakeClient, **request: Any) -> Any:
        if rule := broken_rule(service, operation, request):
            raise self.refusal(rule.code, problem(rule), operation)
        return method(self, **request)

    @wraps(method)
    def call(self: FakeClient, **request: Any) -> Any:
        if not self.checks:
            return answer(self, **request)
        self.check(name, request)
        return perform(self, name, request, partial(answer, self))

    return call


def perform(fake: FakeClient, operation: str, request: dict[str, Any], method: Callable[..., Any]) -> Any:
    """Return the result of `method`; `tests.lost_answers` replaces this to send requests through botocore."""
    with fake._lock:
        return method(**request)


@cache
def _model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


@cache
def operations_of(service: str) -> dict[str, OperationModel]:
    """Return the operations of a service by the names of a client's methods."""
    model = _model(service)
    return {xform_name(name): model.operation_model(name) for name in model.operation_names}


@cache
def _paginators(service: str) -> PaginatorModel:
    return PaginatorModel(Loader().load_service_model(service, "paginators-1"))


@cache
def _exceptions(service: str) -> Any:
    return ClientExceptionsFactory().create_client_exceptions(_model(service))
