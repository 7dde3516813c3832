"""Settings: read once at start from `dromos.toml`, the environment and the command line, the later ones winning;
typed, and final from then on. Each value remembers where it came from, and everything wrong is told at once.

    sections    what can be set, as types, and the values in force
    catalogue   the same as a list, for the guide and `dromos doctor --settings`
    reading     from file, environment and flags to values, or to errors that say the cure

It must not know what the values are used for, open a database or touch the network. Only `bootstrap` and `cli` read
it; every other room is handed plain values. A secret is never printed: see `masked`.
"""

from dromos.settings.catalogue import OTHER_VARIABLES, SETTINGS, Setting
from dromos.settings.reading import SettingsError, load
from dromos.settings.sections import (
    AgentSettings,
    InForce,
    LogSettings,
    RetentionSettings,
    RetrySettings,
    Settings,
    WorkerSettings,
    masked,
)

__all__ = [
    "OTHER_VARIABLES",
    "SETTINGS",
    "AgentSettings",
    "InForce",
    "LogSettings",
    "RetentionSettings",
    "RetrySettings",
    "Setting",
    "Settings",
    "SettingsError",
    "WorkerSettings",
    "load",
    "masked",
]
