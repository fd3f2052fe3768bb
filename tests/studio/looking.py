"""How a test reads numbers off the page: as the page holds them, not as it rounds them.

Every computed figure on the page is a <data> element whose value is the float64 itself; what may be
edited is an <input>. `close` compares with the library to a few roundings, since only the order of
sums differs.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

ROUNDINGS = 4e-13


def percent(share: float, digits: int = 0) -> str:
    """A share as the page writes it: the sign stays with its number."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def typeset(sentence: str) -> str:
    """Its letters on the page, which sets formulas: W_Q as W with a Q below, e^(−1) as a power."""
    sentence = re.sub(r"([dW])_(\w)\b", r"\1\2", sentence)
    return re.sub(r"e\^(?:\(((?:[^()]|\([^()]*\))*)\)|(?=[−\d]))", r"e\1", sentence)


def figures(where: Any) -> np.ndarray:
    """The <data> values under a locator, in the order of the page."""
    texts = where.locator("data").evaluate_all("found => found.map(data => data.value)")
    return np.array([float(text) for text in texts])


def fields(where: Any) -> np.ndarray:
    """The numbers in the inputs under a locator."""
    texts = where.locator("input").evaluate_all("found => found.map(input => input.value)")
    return np.array([float(text.replace("−", "-")) for text in texts])


def grid(part: Any, label: str) -> Any:
    """A matrix by what it is: 'scores', 'attention weights'."""
    return part.get_by_role("grid", name=re.compile(rf", {label}$"))


def matrix(part: Any, label: str) -> np.ndarray:
    """The numbers of a matrix as rows and columns; hidden ones are NaN."""
    rows = (
        grid(part, label)
        .locator("tbody tr")
        .evaluate_all(
            """rows => rows.map(row => [...row.querySelectorAll("td")].map(cell =>
            cell.querySelector("input")?.value ?? cell.querySelector("data")?.value ?? "NaN"))"""
        )
    )
    return np.array([[float(text.replace("−", "-")) for text in row] for row in rows])


def close(found: Any, expected: Any) -> None:
    expected = np.asarray(expected, np.float64)
    found = np.asarray(found, np.float64).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=ROUNDINGS, atol=1e-13)


def at(part: Any, label: str, row: int, column: int) -> Any:
    """One cell of a matrix."""
    return grid(part, label).locator(f'td[data-at="{row},{column}"]')


def focused(page: Any, selector: str) -> None:
    """Waits until what has the focus matches: it follows a new address a moment later."""
    page.wait_for_function("to => document.activeElement.matches(to)", arg=selector)


def violations(page: Any, axe: str, within: str = "html") -> list[str]:
    """Serious and critical findings, one line each."""
    page.evaluate(axe)
    found = page.evaluate(
        "async at => (await axe.run(at, {resultTypes: ['violations']})).violations", within
    )
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
