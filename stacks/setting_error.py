"""Settings that cannot be deployed."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class EnvironmentSettingError(EventPlaneError):
    """The `setting` of an environment has a value that cannot be deployed."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting} {problem}; correct it in stacks/config.py")
        self.setting = setting
        self.problem = problem


class IncompleteEnvironmentError(EventPlaneError):
    """The environment called `name` keeps data, and the `missing` settings are not filled in."""

    def __init__(self, name: str, missing: tuple[str, ...]) -> None:
        super().__init__(
            f"{name} lacks {', '.join(missing)}: it carries people's alarms and keeps their data, so it is "
            "deployed to one account and region, and somebody is paged; fill them in in stacks/config.py"
        )
        self.name = name
        self.missing = missing
