"""What ``dagster dev`` loads: the definitions of the active profile (``SAMOVAR_PROFILE``)."""

from assets.definitions import build_definitions
from pipelines.workspace import Workspace

defs = build_definitions(Workspace.open())
