"""Rounds of an anchors deployment.

    open -> solving -> solved | failed

Users upload anchors while a round is open, each token once. It closes by time, by the number of
users or by hand; then the union is solved. A round that is solved is the one in force until the
next one is. Whoever was late, silent or left out takes part in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from panda_mdp.files import build_domain
from panda_mdp.protocol.messages import AnchorsDeploymentRequest
from panda_mdp.protocol.publishing import unpack
from panda_mdp.protocol.solving import AnchorsTask


def certify_request(body: str, claims: Mapping[str, Any], arrays: bytes) -> dict[str, Any]:
    """What an anchors deployment can promise. Runs in a worker process."""
    domain = build_domain(claims, unpack(arrays), verify=False)
    task = AnchorsTask.of(AnchorsDeploymentRequest.model_validate_json(body), domain)
    return task.facts(task.promise())
