"""The description of the API: FastAPI's, with the bodies that routes read by themselves."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from panda_mdp.protocol.server.routes.common import REQUESTS
from panda_mdp.version import __version__

_REF = "#/components/schemas/{model}"
_DESCRIPTION = (
    "Metric differential privacy as a service. A person's record never leaves the person's device: "
    "no message here has a field for one. Reading domains, tables and deployments needs no token."
)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title="panda-mdp",
        version=__version__,
        description=_DESCRIPTION,
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    named: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        (name, "validation", adapter) for name, adapter in REQUESTS.items()
    ]
    references, shared = TypeAdapter.json_schemas(named, ref_template=_REF)
    for name, schema in shared.get("$defs", {}).items():
        schemas.setdefault(name, schema)
    for (name, _), schema in references.items():
        schemas.setdefault(name, schema)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for operations in document["paths"].values():
        for operation in operations.values():
            if "401" in operation.get("responses", {}):
                operation["security"] = [{"token": []}]
    app.openapi_schema = document
    return document
