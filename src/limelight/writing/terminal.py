"""What comes from files, as a terminal may show it."""

from __future__ import annotations

import re

# Controls (C0 without tab and newline, DEL, C1), lone surrogates, line and paragraph separators,
# and the invisible signs that turn the direction of a line or hide in it. Joiners stay: emoji and
# several scripts are written with them.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def shown(text: str) -> str:
    r"""The text with what would act on a terminal, or mislead its reader, as plain escapes.

    >>> print(shown("a\x1b[31mb\u202ec"))
    a\x1b[31mb\u202ec
    """
    return text if text.isascii() and text.isprintable() else HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
