"""What the site has beyond docs/: the README as its first page, the API from docstrings, the
course that runs in the page, and reports.

MkDocs calls the functions named on_…; mkdocs.yml names this file as its hook.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OWN = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")  # pages at the root
# The reference: modules whole, and of those that hold more the public names alone.
API = {
    "limelight": ["attention", "health", "reference", "masks.values", "masks.algebra",
                  "looking.heatmap", "looking.weights", "looking.pyramid.Pyramid",
                  "worked.trace", "worked.cell", "capture.capture", "capture.site",
                  "capture.comparison", "capture.shipped", "engines.engines",
                  "engines.threads", "errors"],
    "heads": ["heads.kinds", "heads.places", "heads.search", "heads.telling"],
    "survey": ["survey.survey.Survey", "survey.passages"],
    "live": ["live", "live.model", "live.run", "live.off.Off", "live.effects.Effects"],
    "torch": ["torch.functional", "torch.sdpa", "torch.modules", "torch.capturing",
              "torch.losses", "torch.clip", "torch.monitor.monitor",
              "torch.monitor.alarms.Alarm", "torch.paged.paged_attention",
              "torch.paged.paged_inspect", "torch.parallel.attention",
              "torch.parallel.sharding.shard", "torch.parallel.sharding.unshard",
              "torch.parallel.sharding.positions", "torch.parallel.gathering",
              "torch.parallel.exchange.RankError"],
    "hf": ["hf", "hf.loading", "hf.capturing", "hf.registration", "hf.surveying.survey",
           "hf.surveying.induction", "hf.switching.off", "hf.switching.patch", "hf.measuring",
           "hf.continuous.serving"],
    "pictures": ["pictures", "pictures.heatmap", "pictures.lines.lines",
                 "pictures.head_grid.head_grid", "pictures.patches", "pictures.scene.Picture"],
    "report": ["report.page.report", "report.page.write_report", "report.page.Written",
               "views.bundle.bundle", "views.bundle.Bundle", "report.survey",
               "report.comparison"],
    "notebook": ["notebook"],
    "lessons": ["lessons.page", "lessons.data.lessons_data"],
    "learn": ["learn.saturation", "learn.projections", "learn.exercises", "learn.recall",
              "learn.experiments", "learn.experiments.rescue"],
}  # fmt: skip
CSS = """
[data-md-color-primary="custom"] {
  --md-primary-fg-color: #92400e; --md-primary-bg-color: #fff;
  --md-primary-bg-color--light: #ffffffb3; --md-typeset-a-color: #92400e;
}
[data-md-color-accent="custom"] { --md-accent-fg-color: #b45309; }
[data-md-color-scheme="slate"] { --md-typeset-a-color: #f5b455; --md-accent-fg-color: #fbbf24; }
.md-search__form { background-color: #ffffff26; }
.md-typeset h1 { color: inherit; }
.md-typeset iframe {
  width: 100%; height: 46rem; border-radius: 0.4rem;
  border: 1px solid var(--md-default-fg-color--lightest);
}
.md-typeset table:not([class]) thead:not(:has(th:not(:empty))) { display: none; }
"""
COURSE = """# The course, in the page

[Open the whole course](course/index.html){{ .md-button .md-button--primary }}

The studio's lessons, as `limelight lessons --site FOLDER` writes them: they compute in the page and
ask nothing of a server. Each part has a page of its own:

{parts}

[For a class](lessons.md) says how to set one into a page of yours, as the lab is here:

<iframe src="course/lab.html" title="Saturation lab" loading="lazy"></iframe>
"""
PART = re.compile(r'\{ id: "(\w+)", title: "([^"]+)"')
ROOT_LINK = re.compile(r"(\]\(|src=\"|srcset=\")(docs/[^)\"\s]+)")
UP_LINK = re.compile(r"(?:\]\(|src=\"|srcset=\")((?:\.\./)+[^)#\"\s]+)")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    def add(name: str, content: str | bytes) -> None:
        files.append(File.generated(config, name, content=content))

    add("index.md", ROOT_LINK.sub(_from_root, (ROOT / "README.md").read_text(encoding="utf-8")))
    for name in OWN:
        add(name, ROOT_LINK.sub(_from_root, (ROOT / name).read_text(encoding="utf-8")))
    for name, parts in API.items():
        title = "limelight" if name == "limelight" else f"limelight.{name}"
        shown = "\n".join(f"::: limelight.{part}\n" for part in parts)
        add(f"api/{name}.md", f"# {title}\n\n{shown}")
    add("site.css", CSS)
    add("favicon.svg", (ROOT / "web" / "public" / "favicon.svg").read_bytes())
    add("course.md", _course(add))
    add("reports.md", _reports(add))
    for path in sorted({path for page in DOCS.rglob("*.md") for path in _outside(page)}):
        add(f"tree/{path}", (ROOT / path).read_bytes())
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links from docs/ to files of the checkout lead to their copies on the site.

    A mark after a fence's language is for the tests; the site's reader of Markdown knows none.
    """
    markdown = re.sub(r"^(```\w+) no-run$", r"\1", markdown, flags=re.MULTILINE)
    up = "../" * page.file.src_uri.count("/")
    for path in _outside(DOCS / page.file.src_uri):
        markdown = markdown.replace(f"{up}../{path}", f"{up}tree/{path}")
    for name in OWN:
        markdown = markdown.replace(f"{up}../{name}", f"{up}{name}")
    return markdown


def _outside(page: Path) -> set[str]:
    """The files of the checkout outside docs/ that a page links to."""
    found = set()
    for target in UP_LINK.findall(page.read_text(encoding="utf-8")) if page.is_file() else ():
        path = (page.parent / target).resolve()
        if path.is_file() and DOCS not in path.parents and path.name not in OWN:
            found.add(path.relative_to(ROOT).as_posix())
    return found


def _from_root(found: re.Match[str]) -> str:
    """A link of a page at the root, as seen from docs/."""
    before, target = found.groups()
    return before + target.removeprefix("docs/")


def _course(add: Callable[[str, bytes], None]) -> str:
    """What `limelight lessons --site` writes, under course/, and the page that opens it."""
    from limelight.lessons import write_site

    with tempfile.TemporaryDirectory() as folder:
        for path in write_site(folder):
            add(f"course/{path.name}", path.read_bytes())
    titles = PART.findall((ROOT / "web" / "src" / "learn" / "parts.ts").read_text(encoding="utf-8"))
    return COURSE.format(
        parts="\n".join(f"- [{title}](course/{name}.html)" for name, title in titles)
    )


def _reports(add: Callable[[str, bytes], None]) -> str:
    """Every shipped capture as a report, and the page that lists them."""
    import limelight as ll
    from limelight.report import report

    rows = []
    for row in ll.captures():
        capture = row.open()
        add(f"reports/{row.name}.html", report(capture, budget=4_000_000).html.encode())
        rows.append(f"| [{row.name}](reports/{row.name}.html) | {capture.source['title']} |")
    return (
        "# Reports to open\n\nThe captures that come along, each as the one file that "
        "`limelight report NAME -o NAME.html` writes: maps, cells and health, without a server."
        "\n\n| | |\n|---|---|\n" + "\n".join(rows) + "\n"
    )
