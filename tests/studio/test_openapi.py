"""The API does what its description says, for what fits it and for what does not.

Requests are drawn from the description itself: values that fit their schema, values just outside,
and values that fit nothing. Whatever comes, the answer is never a 5xx, is of a kind the description
names, and where it is JSON it fits the schema given for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limelight.studio.api import ENDPOINTS
from limelight.studio.openapi import describe
from tests.studio.conftest import Reply, Running

DESCRIPTION = describe(ENDPOINTS)
SCHEMAS = DESCRIPTION["components"]["schemas"]
OPERATIONS = [
    pytest.param(method, path, operation, id=operation["operationId"])
    for path, item in DESCRIPTION["paths"].items()
    for method, operation in item.items()
]
EXAMPLES = 60
IDS = ["sample", "batch", "long", "deeper:vision", "run", "broken", "none", "smollm2", ".."]
STRANGE = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "-1",
            "1e3",
            "NaN",
            "Infinity",
            "null",
            "true",
            "0:1",
            "1:0",
            "0:0",
            "\x00",
            "٣",
            "../..",
            "%",
            "'\"<>",
        ]
    ),
    st.text(max_size=20),
    st.integers().map(str),
    st.floats().map(str),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def fitting(name: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema, small ones more often."""
    schema = resolved(schema)
    if name in ("id", "model"):
        return st.sampled_from(IDS)
    if "anyOf" in schema:
        return st.one_of([fitting(name, part) for part in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**31)
            small = st.integers(low, min(high, low + 30))
            return st.one_of(small, st.integers(low, high), st.sampled_from([low, high]))
        case "number":
            low, high = schema.get("minimum"), schema.get("maximum", 1e9)
            if low is None:  # the smallest that fits is where things break
                low = math.nextafter(schema.get("exclusiveMinimum", 0), math.inf)
            return st.one_of(st.floats(low, high), st.sampled_from([low, high]))
        case "string" if "pattern" in schema:
            pair = st.tuples(st.integers(0, 30), st.integers(0, 30))
            return pair.map(lambda ends: f"{ends[0]}:{ends[1]}") | st.from_regex(
                schema["pattern"], fullmatch=True
            )
        case "string":
            return st.text(
                min_size=schema.get("minLength", 0), max_size=min(30, schema.get("maxLength", 30))
            )
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(fitting(name, schema.get("items", {})), max_size=5)
        case "null":
            return st.none()
        case "object":
            known = {key: fitting(key, part) for key, part in schema.get("properties", {}).items()}
            needed = set(schema.get("required", ()))
            return st.fixed_dictionaries(
                {key: value for key, value in known.items() if key in needed},
                optional={key: value for key, value in known.items() if key not in needed},
            )
    return ANYTHING


def each(schema: dict[str, Any]) -> Iterator[Any]:
    """The schema of each item of an array."""
    return chain(schema.get("prefixItems", ()), repeat(schema.get("items", {})))


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a JSON value fits a schema, for the words that this description uses."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return any(fits(value, part) for part in schema["anyOf"])
    if "enum" in schema and value not in schema["enum"]:
        return False
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            extra = schema.get("additionalProperties", {})
            return (
                isinstance(value, dict)
                and all(key in value for key in schema.get("required", ()))
                and all(fits(part, known.get(key, extra or {})) for key, part in value.items())
            )
        case "array":
            return (
                isinstance(value, list)
                and all(
                    kind is not False and fits(part, kind)
                    for part, kind in zip(value, each(schema), strict=False)
                )
                and len(value) >= schema.get("minItems", 0)
            )
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
    return True


def drawn(data: st.DataObject, operation: dict[str, Any], path: str) -> str:
    """An address of the operation: mostly fitting, sometimes not."""
    query = []
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        strategy = fitting(name, parameter["schema"])
        value = data.draw(st.one_of(strategy, strategy, strategy, STRANGE), label=name)
        text = quote(str(value), safe="", errors="replace")
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", text or "-")
        elif value is not None and (parameter["required"] or data.draw(st.booleans())):
            query.append(f"{name}={text}")
    if data.draw(st.integers(0, 9)) == 0:
        query.append(
            data.draw(st.sampled_from(["x=1", "=", "&&", "batch=0&batch=0", "%zz", "a[]=1"]))
        )
    return f"{path}?{'&'.join(query)}" if query else path


def judge(reply: Reply, operation: dict[str, Any]) -> None:
    """No error of the server; a status, a kind of content and JSON that the description names."""
    assert reply.status < 500, reply.body
    assert str(reply.status) in operation["responses"], (reply.status, reply.body[:300])
    described = operation["responses"][str(reply.status)]["content"]
    kind = reply.headers["content-type"].partition(";")[0]
    assert kind in described, (kind, reply.body[:300])
    if kind == "application/json":
        assert fits(reply.json(), described[kind]["schema"]), reply.body[:2000]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_never_a_server_error_and_always_as_described(
    studio: Running, method: str, path: str, operation: dict[str, Any]
) -> None:
    heavy = operation["operationId"] in ("make_capture", "capture_report")

    @settings(
        max_examples=5 if heavy else EXAMPLES, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def run(data: st.DataObject) -> None:
        body = None
        if method == "post":
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            body = data.draw(
                st.one_of(fitting("", schema), fitting("", schema), ANYTHING), label="body"
            )
            if heavy and isinstance(body, dict):
                body["model"] = data.draw(st.sampled_from(["none", "..", ""]))
            if path.startswith("/api/live") and isinstance(body, dict) and body.get("model"):
                body["model"] = data.draw(st.sampled_from(["gpt", "code", "none"]))
            body = body if body is not None else b"null"
        origin = data.draw(st.sampled_from([studio.origin] * 9 + ["", "null", "http://x"]))
        headers = {"Origin": origin} if origin else None
        address = drawn(data, operation, path)
        reply = studio.ask(address, method.upper(), body=body, headers=headers)
        judge(reply, operation)

    run()


def edges(schema: dict[str, Any]) -> list[Any]:
    """The ends of what fits a schema, what is just past them, and what fits nothing."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return [edge for part in schema["anyOf"] for edge in edges(part)]
    if "enum" in schema:
        return [*schema["enum"], "other"]
    low, high = schema.get("minimum"), schema.get("maximum")
    match schema.get("type"):
        case "integer":
            return [low, low - 1, high, high + 1, "1.5", "NaN"]
        case "number":
            low = schema["exclusiveMinimum"] if low is None else low
            past = [math.nextafter(low, math.inf), math.nextafter(high, -math.inf)]
            return [low, high, *past, low - 1, high + 1, 5e-324, "NaN", "inf", "-inf"]
        case "string":
            return ["", "0:1", "0:0", "7:3", "0:9999999999", "x" * 500, "\x00", "é"]
    return []


VALID = {"id": "sample", "other": "sample", "rows": "0:5"}
GETS = [operation for operation in OPERATIONS if operation.values[0] == "get"]


@pytest.mark.parametrize(("method", "path", "operation"), GETS)
def test_every_edge_of_every_parameter(
    studio: Running, method: str, path: str, operation: dict[str, Any]
) -> None:
    """One parameter at an edge, all others as they should be."""
    if operation["operationId"] == "capture_report":
        pytest.skip("each answer is a whole report: drawn at random above")
    parameters = {one["name"]: one for one in operation.get("parameters", ())}
    valid = {name: VALID.get(name, (edges(one["schema"]) or [""])[0])
             for name, one in parameters.items() if one["required"]}  # fmt: skip
    if "run" in path:
        valid |= {"id": "run"} if "id" in valid else {}
    whole = [valid, *({**valid, name: edge} for name, one in parameters.items()
                      for edge in edges(one["schema"]))]  # fmt: skip
    for asked in whole:
        texts = {name: quote(str(value), safe="") for name, value in asked.items()}
        address = path
        for name in [name for name, one in parameters.items() if one["in"] == "path"]:
            address = address.replace(f"{{{name}}}", texts.pop(name) or "-")
        reply = studio.ask(f"{address}?{'&'.join(f'{k}={v}' for k, v in texts.items())}")
        judge(reply, operation)
        if asked is valid:
            assert reply.status in (200, 404), (path, reply.body)  # 404: a head without a picture


def test_the_description_is_served_and_whole(studio: Running) -> None:
    served = studio.get("/api/openapi.json")
    assert served == DESCRIPTION
    operations = [op for item in served["paths"].values() for op in item.values()]
    assert len({op["operationId"] for op in operations}) == len(operations) == len(ENDPOINTS)
    assert all(op["summary"].endswith(".") for op in operations)


def test_every_endpoint_refuses_strangers(studio: Running) -> None:
    for path, item in DESCRIPTION["paths"].items():
        for method in item:
            body = {} if method == "post" else None
            headers = {"Origin": studio.origin}
            reply = studio.ask(path.replace("{", "").replace("}", ""), method.upper(), body=body,
                               let_in=False, headers=headers)  # fmt: skip
            assert reply.status == 401, path
