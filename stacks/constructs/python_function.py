"""A Python function: code, dependencies, role, log group, and the mapping of the queue that feeds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Duration, Names, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.function_settings import MetricsSettings, QueueSettings
from eventplane.resource_names import ANY
from eventplane.settings import Settings
from parts import place
from stacks.constructs.function_assets import (
    architecture,
    dependencies_layer,
    function_code,
    python,
    runtime,
)
from stacks.constructs.log_group import log_group
from stacks.constructs.permissions import accept, allow, allow_key, needs_key, service_role
from stacks.constructs.queues import allow_receive, find_queue
from stacks.constructs.rollout import Rollout
from stacks.environment import Environment
from stacks.plane_stack import environment_of
from stacks.settings import FunctionSize, TracingSettings


class PythonFunction(Construct):
    """`handle` of `module`, run on the messages of `sources`, or when somebody calls it.

    It may read its queues, write its log, and do what `statements` allow. Its code brings the `contract`, if
    it needs one. It is told its `settings` and further `variables`; one that `draws_spans` is told where to.
    The messages of one that is not `is_fed` wait until somebody enables the mapping. Its metrics are those of
    `metrics_service`: of all functions of a folder together, unless named.
    A queue calls an alias: a new version comes to it step by step, after the others of its stack if the
    function `deploys_last`. Schedules and people call `function` itself, its newest code: of their few calls
    a tenth would show nothing.
    AWS Lambda ends a chain of messages in which a function is called 16 times, but for one that `may_recur`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        module: str,
        contract: Contract | None = None,
        size: FunctionSize,
        sources: Sequence[sqs.IQueue] = (),
        statements: Sequence[iam.PolicyStatement] = (),
        settings: Settings,
        variables: Mapping[str, str] | None = None,
        draws_spans: bool = False,
        is_fed: bool = True,
        deploys_last: bool = False,
        metrics_service: str | None = None,
        may_recur: bool = False,
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        self.metrics_service = metrics_service or module.split(".")[1]
        self.name = environment.resource_name(name)
        log = log_group(self, "Log", f"/aws/lambda/{self.name}")
        own = [*statements, allow(["logs:CreateLogStream", "logs:PutLogEvents"], [log.log_group_arn])]
        if sources:
            own.append(allow_receive(*sources))
        if sources or needs_key(statements):
            own += allow_key(self)
        tracing = environment.tracing if draws_spans else None
        # In an emulated cloud somebody may set a collector later.
        may_record = draws_spans and (tracing or environment.is_emulated)
        recorder = [place("tracing", "recorder")] if may_record else []
        told = {
            # In logs and spans, and in metrics; with the environment, as an account may have several.
            "POWERTOOLS_SERVICE_NAME": self.name,
            **(QueueSettings(self._url(sources)).variables() if sources else {}),
            **MetricsSettings(environment.resource_name(self.metrics_service)).variables(),
            # botocore looks for credentials elsewhere first otherwise, and waits for it.
            "AWS_EC2_METADATA_DISABLED": "true",
            **(tracing.of_functions.variables() if tracing else {}),
            **settings.variables(),
            **(variables or {}),
        }
        role = service_role(self, "Role", service="lambda", statements=own)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=self.name,
            description=self._description(size),
            runtime=runtime(environment),
            architecture=architecture(environment),
            handler=f"{module}.handle",
            code=function_code([module, *recorder], python(environment), contract),
            layers=[dependencies_layer(Stack.of(self)), *self._collector(tracing)],
            role=role,
            log_group=log,
            memory_size=size.memory_mib,
            timeout=size.timeout,
            reserved_concurrent_executions=size.reserved_concurrency,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if may_recur else None,
            current_version_options=self._version_options(environment, size),
            # X-Ray records a trace a second and function at least: $2.90 for a million lone alarms.
            tracing=lambda_.Tracing.ACTIVE if environment.tracing else lambda_.Tracing.DISABLED,
            environment=told,
        )
        if environment.tracing:
            accept(role, "IAM5[Resource::*]", "X-Ray has no resources to name.")
        accept(self.function, "L1", "Python 3.13 is also that of Debian 13: tests run on it (ADR 50).")
        called: lambda_.IFunction = self.function
        if environment.is_released and sources:
            called = Rollout.of(self).release(self.function, name=self.name, is_last=deploys_last)
        for each in sources:
            self._feed(called, each, size, is_fed)

    def _url(self, sources: Sequence[sqs.IQueue]) -> str:
        """Return the URL of the one that feeds it, or the pattern of their URLs."""
        return sources[0].queue_url if len(sources) == 1 else find_queue(self, "Sources", ANY).queue_url

    @staticmethod
    def _description(size: FunctionSize) -> str | None:
        if size.provisioned_concurrency is None:
            return None
        # CloudFormation cannot change it of a version that is there, and Lambda publishes a new one only of a
        # function that has changed: so the number is a part of the function.
        return f"Keeps {size.provisioned_concurrency} executions warm."

    @staticmethod
    def _version_options(environment: Environment, size: FunctionSize) -> lambda_.VersionOptions | None:
        if size.provisioned_concurrency is None or not environment.is_released:
            return None
        # On the version, not on the alias: Lambda refuses the latter while an alias is shifted. The new one
        # is warm before it gets its first event.
        return lambda_.VersionOptions(provisioned_concurrent_executions=size.provisioned_concurrency)

    def _collector(self, tracing: TracingSettings | None) -> list[lambda_.ILayerVersion]:
        if tracing is None or tracing.collector_layer is None:
            return []
        return [lambda_.LayerVersion.from_layer_version_arn(self, "Collector", tracing.collector_layer)]

    @staticmethod
    def _feed(function: lambda_.IFunction, source: sqs.IQueue, size: FunctionSize, is_fed: bool) -> None:
        # Not as an event source, which would put what it grants into a policy beside the role.
        function.add_event_source_mapping(
            f"SqsEventSource:{Names.node_unique_id(source.node)}",
            event_source_arn=source.queue_arn,
            batch_size=size.batch_size,
            max_batching_window=Duration.seconds(size.batch_window_s) if size.batch_window_s else None,
            max_concurrency=size.max_concurrency,
            report_batch_item_failures=True,
            enabled=is_fed,
        )
        if isinstance(function, lambda_.Alias):
            for each in function.node.find_all():
                if isinstance(each, lambda_.CfnEventSourceMapping):
                    # The CDK takes the alias's name out of its ARN; readers of templates prefer a reference.
                    each.function_name = function.function_arn
