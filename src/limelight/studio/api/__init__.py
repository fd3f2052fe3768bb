"""The API: one table of endpoints, one file for each thing they are about."""

from __future__ import annotations

from limelight.studio.api import (
    captures,
    differences,
    experiments,
    exports,
    heads,
    learn,
    learn_live,
    live,
    models,
    runs,
    surveys,
)
from limelight.studio.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *captures.ENDPOINTS,
    *heads.ENDPOINTS,
    *differences.ENDPOINTS,
    *exports.ENDPOINTS,
    *models.ENDPOINTS,
    *live.ENDPOINTS,
    *learn.ENDPOINTS,
    *learn_live.ENDPOINTS,
    *experiments.ENDPOINTS,
    *runs.ENDPOINTS,
    *surveys.ENDPOINTS,
)
SOCKETS = runs.SOCKETS
