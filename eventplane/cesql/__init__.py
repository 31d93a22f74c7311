"""CESQL v1.0.0, the CloudEvents SQL Expression Language: parse, evaluate, match as a filter, lint.

The specification is cesql/spec.md of github.com/cloudevents/spec, and the section numbers are its own;
docs/reference/cesql.md describes what was chosen where it is open.
"""

from eventplane.cesql.analysis import LintWarning, lint, missing_functions, mixed_logic
from eventplane.cesql.errors import (
    CesqlCastError,
    CesqlError,
    CesqlFunctionEvaluationError,
    CesqlGenericError,
    CesqlMathError,
    CesqlMissingAttributeError,
    CesqlMissingFunctionError,
    CesqlParseError,
)
from eventplane.cesql.expression import Evaluation, Expression, parse
from eventplane.cesql.functions import BUILTINS, Function, Functions
from eventplane.cesql.parser import write

__all__ = [
    "BUILTINS",
    "CesqlCastError",
    "CesqlError",
    "CesqlFunctionEvaluationError",
    "CesqlGenericError",
    "CesqlMathError",
    "CesqlMissingAttributeError",
    "CesqlMissingFunctionError",
    "CesqlParseError",
    "Evaluation",
    "Expression",
    "Function",
    "Functions",
    "LintWarning",
    "lint",
    "missing_functions",
    "mixed_logic",
    "parse",
    "write",
]
