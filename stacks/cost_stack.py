"""Notifications that an environment becomes expensive: a budget, and AWS's anomaly detection."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_ce as ce
from constructs import Construct

from stacks.environment import PROJECT, Environment
from stacks.plane_stack import PLANE_TAG, PlaneStack
from stacks.settings import CostSettings


class CostStack(PlaneStack):
    """Exists where an environment has `costs`. It holds no state and can be removed at any time."""

    def __init__(self, scope: Construct, environment: Environment, costs: CostSettings) -> None:
        super().__init__(scope, environment=environment, name="costs")
        name = environment.resource_name("costs")
        plane = f"{PROJECT}-{environment.name}"
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=costs.monthly_usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{PLANE_TAG}${plane}"]},
            ),
            notifications_with_subscribers=[
                _notification(costs, kind, percent)
                for kind, percent in (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))
            ],
        )
        monitor = ce.CfnAnomalyMonitor(
            self,
            "Monitor",
            monitor_name=name,
            monitor_type="CUSTOM",
            monitor_specification=json.dumps(
                {"Tags": {"Key": PLANE_TAG, "Values": [plane], "MatchOptions": ["EQUALS"]}}
            ),
        )
        ce.CfnAnomalySubscription(
            self,
            "Subscription",
            subscription_name=name,
            frequency="DAILY",  # at once is for SNS topics only
            monitor_arn_list=[monitor.attr_monitor_arn],
            subscribers=[
                ce.CfnAnomalySubscription.SubscriberProperty(address=each, type="EMAIL")
                for each in costs.subscribers
            ],
            threshold_expression=json.dumps(
                {
                    "Dimensions": {
                        "Key": "ANOMALY_TOTAL_IMPACT_ABSOLUTE",
                        "MatchOptions": ["GREATER_THAN_OR_EQUAL"],
                        "Values": [str(costs.anomaly_usd)],
                    }
                }
            ),
        )


def _notification(costs: CostSettings, kind: str, percent: int) -> Any:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            notification_type=kind,
            comparison_operator="GREATER_THAN",
            threshold=percent,
            threshold_type="PERCENTAGE",
        ),
        subscribers=[
            budgets.CfnBudget.SubscriberProperty(address=each, subscription_type="EMAIL")
            for each in costs.subscribers
        ],
    )
