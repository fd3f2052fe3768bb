"""Learn in other languages: no English is left, the choice is kept, and the page says what it speaks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from limelight import texts
from tests.marks import quick
from tests.studio.conftest import Running, Watcher

OTHERS = [language for language in texts.LANGUAGES if language != "en"]

# Every part, and what is set in it so that all it can say is seen.
SHOWN: dict[str, tuple[str, ...]] = {
    "step": (
        *(f"step.stage={stage}" for stage in ("input", "project", "compare", "scale", "mix")),
        "step.stage=project&step.table=key", "step.stage=project&step.table=value",
        "step.stage=mask&step.causal=1", "step.stage=normalise&step.causal=1",
        "step.sentence=Xyzzy+the+plugh", "step.sentence=Xyzzy&step.stage=mask",
    ),
    "map": ("map.of=real", "map.of=toy", "map.row=0&map.column=3"),
    "lab": ("lab.keys=4", "lab.d_k=1024&lab.scaled=0&lab.keys=8&lab.draw=3",
            "lab.d_k=5&lab.scaled=0&lab.keys=8&lab.draw=3"),
    "example": ("example.query=2,1", "example.query=90,1"),
    "scaling": ("scaling.d_k=64", "scaling.d_k=1", "scaling.scores=1;1;1"),
    "training": tuple(
        f"training.setting={setting}&training.figure={figure}&training.d_k={size}"
        for setting, figure, size in (
            ("unit", "loss", 256), ("small", "score_gradient", 16), ("unit-sgd", "spread", 64),
            ("unit", "saturated", 16),
        )
    ),
    "input": ("input.placed=0", "input.placed=1&input.swapped=1"),
    "future": ("future.masked=1", "future.masked=0&future.written=5", "future.ahead=1&future.row=1"),
    "apply": ("apply.tab=exercises&apply.level=1&apply.seed=1",
              "apply.tab=exercises&apply.level=4&apply.seed=2", "apply.tab=quiz&apply.question=1"),
    "heads": ("heads.layer=0", "heads.layer=11&heads.row=2"),
    "next": ("next.at=0",),
    "not": (),
    "stays": (),
    "softmax": ("softmax.scores=2,1,-1", "softmax.scores=2,1,1", "softmax.scores=2,-1,-1"),
}  # fmt: skip

ADDRESSES = [state for states in SHOWN.values() for state in states]

# What is the same in every language: signs, names, what a model reads, and commands.
SAME = re.compile(
    r"""[A-Za-zΣΔ]\d?|d_?k|dₖ|[⁰¹²³⁴⁵⁶⁷⁸⁹]+|max|[Ss]oftmax|[Aa]rgmax|logits|tanh|ln|float64|W_[QK]|Adam|SGD|BERT
    |limelight|Explore|Learn|Watch|English|Deutsch|Español|SmolLM2.*|135M.*|Vaswani|et|al
    |PageUp|PageDown|Escape|[Tt]he|curious|cat|watched|bird|dog|chased|Xyzzy|plugh
    |[Ee]mbeddings?|Feed-forward|GPT|Llama""",
    re.VERBOSE,
)
# What the small model is given to read.
READ = re.compile("It is the east, .*|O Romeo, .*|To be, or not .*")
# A sentence that has one of these is English; also one of which a piece alone was translated.
ENGLISH = re.compile(
    "and|of|is|with|what|which|that|this|not|from|how|each|only|are|its|does|one|by|to|they|as|be|for|it"
    "|than|then|there|where|when|you|your"
)
# Words of one language that happen to be English too.
ALIKE = {
    "de": {"Query", "Queries", "Key", "Keys", "Value", "Values", "Score", "Scores", "Gradient", "Loss",
           "Bias", "Attention", "Seeds", "Norm", "Logits", "Argmax", "Quiz"},
    "es": {"no", "a"},
}  # fmt: skip

TEXTS = """() => {
  const found = {};
  const skipped = "script, style, noscript, body [lang=en], math, .math, code, data, input";
  const add = (node, text) => {
    const own = node.closest("#training") ?? node.closest("section[id]");
    const where = own ? own.id : "page";
    (found[where] ??= []).push(text.replace(/\\s+/g, " ").trim());
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!node.closest(skipped)) add(node, walk.currentNode.data);
  }
  for (const name of ["aria-label", "aria-valuetext", "aria-roledescription", "title", "placeholder"])
    for (const node of document.querySelectorAll(`[${name}]`))
      if (!node.closest("body [lang=en]")) add(node, node.getAttribute(name));
  return found;
}"""


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_](?:[\w’-]*\w)?", text))


def foreign(text: str) -> set[str]:
    return {word for word in words(text) if not SAME.fullmatch(word)}


@pytest.fixture(scope="module")
def tab(browser: Any, studio: Running) -> Iterator[Any]:
    """One tab for all that is only read."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(45_000)
    watcher = Watcher(studio.origin)
    watcher.attach(context)
    page = context.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/learn")
    settled(page)
    yield page
    context.close()
    assert watcher.problems == []


def settled(page: Any) -> None:
    page.locator("#map .halves[aria-busy=false]").wait_for()
    page.locator("#training .waiting").wait_for(state="detached")
    page.locator("#remedies .waiting").wait_for(state="detached")
    page.locator("#apply .board:not(.waiting)").wait_for()
    page.locator("#next .stops data").first.wait_for()


def said(page: Any, language: str, addresses: list[str]) -> dict[str, set[str]]:
    """All that the parts say at these addresses, by part."""
    found: dict[str, set[str]] = {}
    for address in addresses:
        page.evaluate(
            "hash => (location.hash = hash)", f"#/learn?{address}&page.language={language}"
        )
        page.wait_for_function("code => document.documentElement.lang === code", arg=language)
        page.wait_for_timeout(60)
        for part, lines in page.evaluate(TEXTS).items():
            found.setdefault(part, set()).update(lines)
    return found


@pytest.fixture(scope="module")
def english(tab: Any) -> dict[str, set[str]]:
    return said(tab, "en", ADDRESSES)


# One language by default, the others in the slow tests: what is not marked for translation is in all.
@pytest.mark.parametrize("language", quick(OTHERS))
def test_no_english_is_left(tab: Any, english: dict[str, set[str]], language: str) -> None:
    other = said(tab, language, ADDRESSES)
    left = {}
    for part in ("page", *SHOWN):
        assert len(english[part]) > 10, part
        same = {t for t in english[part] & other[part] if foreign(t) - ALIKE[language]}
        mixed = {t for t in other[part] if any(map(ENGLISH.fullmatch, words(t)))}
        if found := sorted(t for t in same | mixed if not READ.fullmatch(t)):
            left[part] = found
    assert left == {}, json.dumps(left, indent=1, ensure_ascii=False)


def test_the_choice_is_kept_carried_and_marked(page: Any) -> None:
    page.get_by_role("navigation", name="Parts").get_by_role(
        "combobox", name="Language"
    ).select_option("de")
    page.get_by_role("heading", name="Attention, bei Licht besehen.").wait_for()
    assert page.locator("html").get_attribute("lang") == "de"
    page.wait_for_url(re.compile("page.language=de"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#lab").get_by_role("button", name="Link kopieren").click()
    page.locator("#lab").get_by_text("Link kopiert", exact=True).wait_for()
    assert "page.language=de" in page.evaluate("navigator.clipboard.readText()")

    page.get_by_role("link", name="Explore", exact=True).click()
    page.wait_for_url(re.compile("#/explore"))
    page.wait_for_function("document.documentElement.lang === 'en'")
    assert page.get_by_role("link", name="Skip to the content").count() == 1
    page.get_by_role("link", name="Learn", exact=True).click()
    page.get_by_role("heading", name="Attention, bei Licht besehen.").wait_for()
    page.evaluate("history.replaceState(null, '', location.pathname + '#/learn')")
    page.reload()  # the browser keeps it, also where the address is silent
    page.get_by_role("heading", name="Attention, bei Licht besehen.").wait_for()

    foot = page.locator(".translated")
    assert "durch Lesen geprüft" in foot.inner_text()
    foot.get_by_role("button").click()
    page.get_by_role("heading", name="Attention, with the lights on.").wait_for()
    assert foot.count() == 0
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_language_that_does_not_come_is_said(browser: Any, studio: Running) -> None:
    page = browser.new_page()
    page.route("**/assets/de-*.js", lambda route: route.abort())
    page.goto(f"{studio.origin}/?token={studio.token}#/learn")
    parts = page.get_by_role("navigation", name="Parts")
    choice = parts.get_by_role("combobox", name="Language", exact=True)
    choice.select_option("de")
    told = parts.get_by_role("alert").get_by_text("Deutsch could not be fetched")
    told.wait_for()
    assert choice.input_value() == "en"
    choice.select_option("es")
    page.locator("html[lang=es]").wait_for(state="attached")
    assert told.count() == 0
    page.close()


# What is said in English on a page of another language, as words that stand alone.
SAMPLES = """() => {
  const words = new Set("The the curious cat watched bird dog chased".split(" "));
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (words.has(walk.currentNode.data.trim()) && node.closest("[lang]").lang !== "en")
      found.push(node.outerHTML.slice(0, 160));
  }
  return found;
}"""


@pytest.mark.parametrize("language", OTHERS)
def test_words_of_the_examples_are_marked_as_english(tab: Any, language: str) -> None:
    for address in ("input.placed=0", "step.stage=compare", "step.stage=mix", "future.ahead=1",
                    "heads.row=2"):  # fmt: skip
        said(tab, language, [address])
        assert tab.evaluate(SAMPLES) == []
    assert tab.locator("#step table [lang=en]").count() > 0
    assert tab.locator("#next textarea").get_attribute("lang") == "en"


@pytest.mark.parametrize(
    ("language", "large"), [("de", "2\u202f000"), ("es", "2000"), ("en", "2,000")]
)
def test_large_numbers_are_grouped_as_the_language_does(
    tab: Any, language: str, large: str
) -> None:
    said(tab, language, ["lab.keys=4"])
    assert re.search(r"\d[\d,\u202f]*0", tab.locator("#lab span.mean").inner_text())[0] == large
