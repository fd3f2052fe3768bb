"""What the texts must not teach: sentences that are false, and one word for two ideas."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src/limelight").rglob("*.py")),
    *(path for path in sorted((ROOT / "web/src").rglob("*")) if path.suffix in (".svelte", ".ts")),
]


@pytest.mark.parametrize(
    ("false", "because"),
    [
        (r"learning stops|nothing is left to learn|making learning impossible",
         "unsaturated rows carry the gradient: docs/experiment.md measures it"),
        (r"length of (a|one|the|its) (key|query|vector)|vectors?'? lengths?\b",
         "a vector has entries and a norm; length is that of a text"),
        (r"(vectors?|scaled|keys) (of|to) length|keys get longer|[Ll]onger (vectors|keys)|longer the keys",
         "a vector has entries and a norm; length is that of a text"),
        (r"back to the same range", "scaling takes out the growth with d_k and sets no bound"),
        (r"[Aa]ll weights are positive", "a hidden key's weight is 0"),
        (r"takes it all", "a key with 0.95 of the weight does not have all of it"),
        (r"no other way to say nothing", "there are others: learned sinks, gates, small values"),
        (r"for the rest of the model", "what a head does for others is not seen in its weights"),
        (r"how much do you matter|weight (is|says|tells) how (much it matters|important)",
         "a weight says how much of a value is taken"),
        (r"not too large to begin with", "also said where both rows were saturated"),
        (r"(key|value) \d+ dominates|[Vv]alue dominates", "weight and contribution are two figures"),
    ],
)  # fmt: skip
def test_no_text_says(false, because):
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in TEXTS
        for match in re.finditer(false, path.read_text(encoding="utf-8"))
    ]
    assert not found, because


@pytest.mark.parametrize(
    "page", TEXTS[: TEXTS.index(ROOT / "src/limelight/__init__.py")], ids=lambda page: page.name
)
def test_an_order_says_what_was_found(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"[Ww]orst\*? (heads )?first|[Ll]ook first at|the worst \d+", text)


def section(page, heading):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]


def test_what_the_scaling_does_has_one_truth_and_the_pages_lead_to_each_other():
    learn = section("learn.md", "## Why divide by √d_k")
    assert "(experiment.md)" in learn
    assert "the rows that are not saturated carry the gradient" in learn
    experiment = (ROOT / "docs/experiment.md").read_text(encoding="utf-8")
    assert "(learn.md#why-divide-by-d_k)" in experiment
    assert "the rows that are not saturated have a lot, and they carry the sum" in experiment


def test_the_encoder_is_said_to_be_what_it_is():
    page = (ROOT / "docs/systems/bert.md").read_text(encoding="utf-8")
    assert "distilled" in page
    assert "words are hidden and guessed" not in page
