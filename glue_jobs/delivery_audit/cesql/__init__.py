"""CESQL as Spark columns, without UDFs: the same trees that the routers compile to Python.

An expression that errs gives null, as no CESQL value is null and nearly every Spark function of null is null:
so an error ends the evaluation, as it does in the routers. Where Spark would ignore a null (AND, OR, IN,
CONCAT_WS), another formulation stands in `translation` and `functions`.
"""

from glue_jobs.delivery_audit.cesql.translation import NOT_ATTRIBUTES, AttributeColumns, passes

__all__ = ["NOT_ATTRIBUTES", "AttributeColumns", "passes"]
