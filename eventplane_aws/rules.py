"""AWS's rules that the plane can meet: each with its number, source and answer, and who enforces it here.

That is synthesis (`stacks.rules`), or the emulated cloud's front and the simulator's models
(`lab.aws_requests`): before AWS does. `docs/reference/limits.md` shows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from eventplane.limits import MAX_PAYLOAD_BYTES, MAX_RECEIVES, MAX_SQS_ATTRIBUTES, MAX_SQS_BYTES

_AWS: Final = "https://docs.aws.amazon.com/"
_CLOUDFORMATION: Final = f"{_AWS}AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"
_CODE_DEPLOY: Final = f"{_AWS}codedeploy/latest/userguide/limits.html"
_DYNAMODB: Final = f"{_AWS}amazondynamodb/latest/developerguide/"
_IAM: Final = f"{_AWS}IAM/latest/UserGuide/reference_iam-quotas.html"
_IOT: Final = f"{_AWS}general/latest/gr/iot-core.html"
_IOT_CREATE: Final = f"{_AWS}iot/latest/apireference/API_Create"
_LAMBDA: Final = f"{_AWS}lambda/latest/dg/"
_LAMBDA_API: Final = f"{_AWS}lambda/latest/api/API_"
_LOGS: Final = f"{_AWS}AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html"
_BUDGETS: Final = (
    f"{_AWS}aws-cost-management/latest/APIReference/API_budgets_NotificationWithSubscribers.html"
)
_CLOUDWATCH: Final = f"{_AWS}AmazonCloudWatch/latest/APIReference/"
_ALARM: Final = f"{_CLOUDWATCH}API_PutMetricAlarm.html"
_S3: Final = f"{_AWS}AmazonS3/latest/"
_SCHEDULER: Final = f"{_AWS}scheduler/latest/"
_SQS: Final = f"{_AWS}AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-"

_SYNTHESIS: Final = "synthesis"
_FRONT: Final = "emulated cloud"
_CALLS: Final = "emulated cloud, simulator"
_SIMULATOR: Final = "simulator"

_FEWER_SERVICES: Final = "have fewer cloud services in one plane, or let fewer of them ask"
_SHORTER_NAMES: Final = "let fewer services ask, or choose shorter names for new ones"
_SHORTER_ENVIRONMENT: Final = "choose a shorter name of the environment"

_UNREAD: Final = "the number: memory, or what others write: the page could not be read"
_QUOTED: Final = "the number: others who quote the page, which could not be read"


@dataclass(frozen=True, slots=True)
class Rule:
    """AWS allows at most `most` of `unit` of what is called `name`, by the page `source`.

    `enforced` names who enforces it here, or, after `AWS alone: `, why that is not possible. `answer` is
    AWS's error code, or what AWS does instead; empty: the deployment fails, and `remedy` is what to do at
    synthesis. `basis` is what number or code rests on where neither the page, nor a copy of it, nor AWS's
    model of the API that says it was read.
    """

    name: str
    most: int
    unit: str
    source: str
    enforced: str
    answer: str = ""
    remedy: str = ""
    basis: str = ""

    @property
    def code(self) -> str:
        """The error code of AWS's answer to a request."""
        return self.answer.rpartition(" ")[2]


_template = partial(Rule, source=_CLOUDFORMATION, enforced=_SYNTHESIS, remedy=_FEWER_SERVICES)
_own = partial(_template, remedy="reduce it in stacks/, or report it to the project")
_name = partial(_template, unit="characters", remedy=_SHORTER_ENVIRONMENT)

TEMPLATE: Final = _template("template", 1_000_000, "bytes")
RESOURCES: Final = _template("resources", 500, "resources")
OUTPUTS: Final = _template("outputs", 200, "outputs")
PARAMETERS: Final = _own("parameters", 200, "parameters")
MAPPINGS: Final = _own("mappings", 200, "mappings")

_function = partial(_own, source=f"{_LAMBDA}gettingstarted-limits.html")
VARIABLES: Final = _function("variables of a function", 4_096, "bytes", remedy=_SHORTER_NAMES)
LAYERS: Final = _function("layers of a function", 5, "layers")
LAMBDA_TIMEOUT: Final = _function("timeout of a function", 900, "seconds")
LAMBDA_MEMORY: Final = _function("memory of a function", 10_240, "MB")
_mapping = partial(_own, source=f"{_LAMBDA_API}CreateEventSourceMapping.html")
MAPPING_BATCH: Final = _mapping("batch from a queue", 10_000, "messages")
MAPPING_WINDOW: Final = _mapping("batching window", 300, "seconds")
MAPPING_CONCURRENCY: Final = _mapping("calls from a queue at a time", 1_000, "calls")

_policy = partial(_template, unit="characters", source=_IAM)
INLINE_POLICIES: Final = _policy("inline policies of a role", 10_240, basis=_QUOTED)
GROUP_POLICIES: Final = _policy("inline policies of a group", 5_120, basis=_QUOTED)
USER_POLICIES: Final = _policy("inline policies of a user", 2_048, basis=_QUOTED)
TRUST_POLICY: Final = _own("trust policy of a role", 2_048, "characters", source=_IAM)
MANAGED_POLICY: Final = _policy("managed policy", 6_144, remedy=_SHORTER_NAMES, basis=_QUOTED)
MANAGED_POLICIES: Final = _own("managed policies of a role", 10, "policies", source=_IAM)
IOT_POLICY: Final = _policy("IoT policy", 2_048, source=_IOT, remedy=_SHORTER_ENVIRONMENT)
_queue_policy = partial(_template, source=f"{_SQS}policies.html")
QUEUE_POLICY: Final = _queue_policy("queue policy", 8_192, "bytes")
QUEUE_STATEMENTS: Final = _queue_policy("statements of a queue policy", 20, "statements")
BUCKET_POLICY: Final = _own("bucket policy", 20_480, "bytes", source=f"{_S3}userguide/bucket-policies.html")
KEY_POLICY: Final = _own(
    "key policy", 32_768, "bytes", source=f"{_AWS}kms/latest/developerguide/resource-limits.html"
)
RULE_ACTIONS: Final = _own("actions of an IoT rule", 10, "actions", source=_IOT)
JOB_TIMEOUT: Final = _own(
    "timeout of a job", 10_080, "minutes", source=f"{_AWS}glue/latest/webapi/API_Job.html"
)
BUDGET_SUBSCRIBERS: Final = _own("addresses of a budget's notification", 10, "addresses", source=_BUDGETS)
WIDGET_ALARMS: Final = _own(
    "alarms in a widget",
    100,
    "alarms",
    source=f"{_CLOUDWATCH}CloudWatch-Dashboard-Body-Structure.html",
    basis=_UNREAD,
)
ALARM_ACTIONS: Final = _own("actions of an alarm, for each state", 5, "actions", source=_ALARM)
ALARM_METRICS: Final = _own(
    "metrics of an alarm",
    10,
    "metrics",
    source=f"{_AWS}AmazonCloudWatch/latest/monitoring/alarm-limits.html",
)
SCHEDULE_INPUT: Final = _own(
    "input of a schedule",
    262_144,
    "bytes",
    source=f"{_SCHEDULER}UserGuide/scheduler-quotas.html",
    basis=_UNREAD,
)

STACK_NAME: Final = _name("name of a stack", 128)
NAMES: Final[Mapping[str, tuple[str, Rule]]] = {
    f"AWS::{type}": (
        key,
        _name(f"name of {what}", most, source=source),
    )
    for type, key, what, most, source in (
        ("CloudWatch::Alarm", "AlarmName", "an alarm", 255, _ALARM),
        ("CodeDeploy::Application", "ApplicationName", "a deployed application", 100, _CODE_DEPLOY),
        ("CodeDeploy::DeploymentGroup", "DeploymentGroupName", "a deployment group", 100, _CODE_DEPLOY),
        ("DynamoDB::Table", "TableName", "a table", 255, f"{_DYNAMODB}Constraints.html"),
        ("Glue::Job", "Name", "a job", 255, f"{_AWS}glue/latest/webapi/API_CreateJob.html"),
        ("IAM::ManagedPolicy", "ManagedPolicyName", "a managed policy", 128, _IAM),
        ("IAM::Role", "RoleName", "a role", 64, _IAM),
        ("IoT::Policy", "PolicyName", "an IoT policy", 128, f"{_IOT_CREATE}Policy.html"),
        (
            "IoT::ProvisioningTemplate",
            "TemplateName",
            "a provisioning template",
            36,
            f"{_IOT_CREATE}ProvisioningTemplate.html",
        ),
        ("IoT::TopicRule", "RuleName", "an IoT rule", 128, f"{_IOT_CREATE}TopicRule.html"),
        ("Lambda::Function", "FunctionName", "a function", 64, f"{_LAMBDA_API}CreateFunction.html"),
        ("Lambda::LayerVersion", "LayerName", "a layer", 140, f"{_LAMBDA_API}PublishLayerVersion.html"),
        ("Logs::LogGroup", "LogGroupName", "a log group", 512, _LOGS),
        ("S3::Bucket", "BucketName", "a bucket", 63, f"{_S3}userguide/bucketnamingrules.html"),
        ("SNS::Topic", "TopicName", "a topic", 256, f"{_AWS}sns/latest/api/API_CreateTopic.html"),
        ("SQS::Queue", "QueueName", "a queue", 80, f"{_SQS}queues.html"),
        (
            "Scheduler::Schedule",
            "Name",
            "a schedule",
            64,
            f"{_SCHEDULER}APIReference/API_CreateSchedule.html",
        ),
    )
}
"""The rule of the name of a resource, and the property that has it, by the resource's type."""

_sqs = partial(Rule, source=f"{_SQS}messages.html", enforced=_CALLS, answer="InvalidParameterValue")
_queue = partial(_sqs, source=f"{_SQS}queues.html")
_CODE: Final = "AWS.SimpleQueueService."
SQS_MESSAGE: Final = _sqs("SQS message, with attributes", MAX_SQS_BYTES, "bytes")
SQS_BATCH_BYTES: Final = _sqs(
    "messages of one SendMessageBatch", MAX_SQS_BYTES, "bytes", answer=f"{_CODE}BatchRequestTooLong"
)
SQS_BATCH: Final = _sqs(
    "entries of a batch request to SQS", 10, "entries", answer=f"{_CODE}TooManyEntriesInBatchRequest"
)
SQS_RECEIVE: Final = _sqs("messages of one ReceiveMessage", 10, "messages")
SQS_ATTRIBUTES: Final = _sqs("attributes of an SQS message", MAX_SQS_ATTRIBUTES, "attributes")
SQS_DELAY: Final = _sqs("delay of an SQS message", 900, "seconds")
SQS_WAIT: Final = _queue("long poll", 20, "seconds")
SQS_VISIBILITY: Final = _sqs("visibility timeout", 43_200, "seconds")
SQS_RETENTION: Final = _sqs("retention of a queue", 14 * 86_400, "seconds", answer="InvalidAttributeValue")
SQS_RECEIVES: Final = _queue(
    "receives of a message (`maxReceiveCount`)",
    MAX_RECEIVES,
    "receives",
    answer="InvalidAttributeValue",
    basis="the number: the documentation of an AWS library (`QueueDlqProps`); the page has none",
)
SQS_IN_FLIGHT: Final = _queue(
    "messages in flight of a standard queue", 120_000, "messages", answer="OverLimit"
)
SQS_FIFO_IN_FLIGHT: Final = _queue(
    "messages in flight of a FIFO queue",
    120_000,
    "messages",
    source=f"{_SQS}fifo.html",
    answer="no message, and no error",
)
SQS_FIFO_CALLS: Final = _sqs(
    "calls of one operation of a FIFO queue",
    300,
    "a second",
    answer="RequestThrottled",
    enforced="AWS alone: the plane's FIFO queues are in high-throughput mode, where each group has it",
)

_dynamodb = partial(
    Rule, source=f"{_DYNAMODB}Constraints.html", enforced=_CALLS, answer="ValidationException"
)
DYNAMODB_ITEM: Final = _dynamodb("item of a table, with its names", 400 * 1024, "bytes")
DYNAMODB_PARTITION_KEY: Final = _dynamodb("partition key", 2_048, "bytes")
DYNAMODB_SORT_KEY: Final = _dynamodb("sort key", 1_024, "bytes")
DYNAMODB_GET: Final = _dynamodb("keys of one BatchGetItem", 100, "keys")
DYNAMODB_WRITE: Final = _dynamodb("items of one BatchWriteItem", 25, "items", enforced=_FRONT)
DYNAMODB_TRANSACT: Final = _dynamodb("items of one transaction", 100, "items", enforced=_FRONT)
DYNAMODB_WRITES: Final = _dynamodb(
    "write units of one partition",
    1_000,
    "a second",
    source=f"{_DYNAMODB}warm-throughput-scenarios.html",
    answer="ThrottlingException",
    enforced="AWS alone: partitions are AWS's own; histories and chaos throttle tables instead",
)
S3_KEY: Final = Rule(
    "key of an object", 1_024, "bytes", f"{_S3}userguide/object-keys.html", _CALLS, "KeyTooLongError"
)
S3_DELETE: Final = Rule(
    "keys of one DeleteObjects",
    1_000,
    "keys",
    f"{_S3}API/API_DeleteObjects.html",
    _CALLS,
    "MalformedXML",
    basis="the code: AWS's answer to issue 1293 of aws-sdk-java; the page has none",
)

_iot = partial(Rule, source=_IOT)
_mqtt = partial(
    _iot, enforced=_CALLS, answer="over MQTT the connection ends; over HTTPS InvalidRequestException"
)
IOT_MESSAGE: Final = _mqtt("MQTT payload", MAX_PAYLOAD_BYTES, "bytes")
IOT_TOPIC: Final = _mqtt("topic, without `$aws/rules/RULE/`", 256, "bytes")
IOT_LEVELS: Final = _mqtt("slashes in a topic, without `$aws/rules/RULE/`", 7, "slashes")
IOT_PUBLISHES: Final = _iot(
    "publishes of a connection",
    100,
    "a second",
    answer="no acknowledgement",
    enforced=f"{_SIMULATOR}; a busy machine hands publishes to the emulated cloud late and at once",
)
IOT_UNACKNOWLEDGED: Final = _iot(
    "unacknowledged publishes to a client",
    100,
    "publishes",
    answer="a delay",
    enforced=f"{_SIMULATOR}; the emulated cloud keeps no queue for a session that is connected",
)
IOT_THROUGHPUT: Final = _iot(
    "bytes of a connection",
    512 * 1024,
    "bytes a second",
    answer="a delay",
    enforced="AWS alone: AWS only delays what exceeds it; devices keep it themselves (`cloud.bytes_per_s`)",
)

_lambda = partial(
    Rule, source=f"{_LAMBDA}gettingstarted-limits.html", enforced=_FRONT, answer="RequestTooLargeException"
)
LAMBDA_PAYLOAD: Final = _lambda("payload of a synchronous call", 6 * 1024 * 1024, "bytes")
LAMBDA_ASYNCHRONOUS: Final = _lambda("payload of an asynchronous call", 1024 * 1024, "bytes")
LAMBDA_CONCURRENCY: Final = _lambda(
    "executions at a time in a new account",
    10,
    "executions",
    enforced=_CALLS,
    answer="TooManyRequestsException",
    basis="the number: what new accounts show; the page says only that they have fewer",
)
LAMBDA_UNRESERVED: Final = _lambda(
    "executions that cannot be reserved",
    100,
    "executions",
    enforced="preflight",
    answer="InvalidParameterValueException",
)
LAMBDA_BATCH: Final = _lambda(
    "payload of a batch from a queue",
    LAMBDA_PAYLOAD.most,
    "bytes",
    source=f"{_LAMBDA}invocation-eventsourcemapping.html",
    enforced=_CALLS,
    answer="a smaller batch",
)
LAMBDA_CHAIN: Final = _lambda(
    "calls of a function in one chain of messages",
    16,
    "calls",
    source=f"{_LAMBDA}invocation-recursion.html",
    enforced=_CALLS,
    answer="the message goes to the dead-letter queue",
)
LOG_EVENTS: Final = Rule(
    "events of one PutLogEvents, with 26 for each",
    1024 * 1024,
    "bytes",
    f"{_AWS}AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html",
    _FRONT,
    "InvalidParameterException",
)

_ALL: Final = [*globals().values(), *(rule for _, rule in NAMES.values())]
RULES: Final = sorted(
    (each for each in _ALL if isinstance(each, Rule)), key=lambda rule: rule.enforced != _SYNTHESIS
)
"""All of them, those of templates first."""
