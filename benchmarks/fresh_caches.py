"""A pytest plugin: clear the caches of our functions before the tests.

mutmut forks the process that has run all tests once. What functions remembered then would be the unchanged
code's answers, and a mutant behind a cache would survive.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Final

CACHED: Final = type(cache(lambda: None))


def pytest_sessionstart() -> None:
    """Clear every `functools.cache` of a module of this repository that is loaded."""
    packages = ("edge", "eventplane", "eventplane_client", "eventplane_mqtt", "glue_jobs", "lambdas")
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            for each in list(vars(module).values()):
                if isinstance(each, CACHED):
                    each.cache_clear()
