"""The API: one table of endpoints, one file for each thing they are about."""

from __future__ import annotations

from limelight.studio.api import about
from limelight.studio.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (*about.ENDPOINTS,)
SOCKETS: tuple = ()
