"""The API's description in OpenAPI 3.1, made from the same table as its routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from limelight import __version__
from limelight.studio.answers import Problem
from limelight.studio.endpoint import Endpoint, MediaTypes

REFERENCE = "#/components/schemas/{name}"
ERRORS = {
    "400": "something asked for is wrong; the sentence says what",
    "401": "the key is missing",
    "403": "the request comes from another page, or does not say from which",
    "404": "there is no such thing",
    "409": "a package that this needs is not installed",
    "415": "the body is not application/json",
    "413": "the body, or what is asked for, is too large",
    "503": "too many requests are waiting",
}


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document; it names no server, because every start has its own address."""
    types = [kind for endpoint in endpoints for kind in (endpoint.asked, endpoint.gives)
             if not isinstance(kind, MediaTypes)]  # fmt: skip
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=REFERENCE)
    found = {repr(kind): schema for kind, schema in zip([*types, Problem], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, found, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "limelight studio", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(
    endpoint: Endpoint, found: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    if isinstance(endpoint.gives, MediaTypes):
        binary = {"schema": {"type": "string", "format": "binary"}}
        content: dict[str, Any] = dict.fromkeys(endpoint.gives.names, binary)
    else:
        content = {"application/json": {"schema": found[repr(endpoint.gives)]}}
    problem = {"application/json": {"schema": found[repr(Problem)]}}
    made: dict[str, Any] = {
        "operationId": endpoint.function.__name__,
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "as asked", "content": content},
            **{
                status: {"description": why, "content": {**problem, "text/plain": {}}}
                for status, why in ERRORS.items()
            },
        },
    }
    schema = found[repr(endpoint.asked)]
    if endpoint.method == "POST":
        body = {"application/json": {"schema": schema}}
        made["requestBody"] = {"required": True, "content": body}
        return made
    fields = components[schema["$ref"].rpartition("/")[2]]
    in_path = set(re.findall(r"{(\w+)", endpoint.path))
    made["parameters"] = [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in fields.get("required", ()),
            "schema": shape,
        }
        for name, shape in fields.get("properties", {}).items()
    ]
    return made
