"""A setting that cannot be deployed."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class EnvironmentSettingError(EventPlaneError):
    """The `setting` of an environment has a value that cannot be deployed."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting} {problem}; correct it in stacks/config.py")
        self.setting = setting
        self.problem = problem
