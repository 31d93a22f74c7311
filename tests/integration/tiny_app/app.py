"""The smallest app that needs what the real one needs: an asset to upload, a role, a resource."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_lambda, aws_sqs

app = cdk.App()
stack = cdk.Stack(app, "Tiny", synthesizer=cdk.CliCredentialsStackSynthesizer())
queue = aws_sqs.Queue(stack, "Queue")
function = aws_lambda.Function(
    stack,
    "Function",
    runtime=aws_lambda.Runtime.PYTHON_3_11,
    handler="index.handler",
    code=aws_lambda.Code.from_asset("function"),
)
queue.grant_send_messages(function)
cdk.CfnOutput(stack, "FunctionName", value=function.function_name)
app.synth()
