"""Letters for PNG pictures: a small stroke alphabet, drawn at any size and angle.

No font file is at hand without a drawing library, so each letter is a few lines and arcs on a grid:
baseline y = 0, small letters 5 high, capitals 7, descenders to −2, ten units to the em. A path is

    L x,y x,y …            straight lines
    S x,y x,y …            a smooth curve through the points
    A cx,cy rx,ry a,b      an arc of an ellipse from angle a to b, in degrees, counterclockwise
    D x,y                  a dot

Latin letters take their accents by composition. Other scripts come from the machine's own fonts,
where Pillow is installed (pictures/fonts.py), a stretch of letters at a time, so that they join and
run as they do; a letter that no font has is a box, and whoever draws the picture is told why. SVG
pictures show every script, with the reader's own fonts.
"""

from __future__ import annotations

import math
import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from limelight.pictures import fonts

Points = NDArray[np.float64]
EM, GAP = 10.0, 1.75  # units to the em, and between two letters
WEIGHT = 0.88  # of a stroke
JOINED = ("Mn", "Mc", "Me", "Cf")  # signs that stand at another letter, not for themselves
MIDDLE = 2.6  # of small letters: where a line of text is centred

_LETTERS = """
a 4 A 2,2.5 2,2.5 0,360; L 4,5 4,0
b 4 L 0,7.2 0,0; A 2,2.5 2,2.5 0,360
c 3.6 A 2,2.5 2,2.5 45,315
d 4 A 2,2.5 2,2.5 0,360; L 4,7.2 4,0
e 4 A 2,2.5 2,2.5 0,318; L 0,2.5 4,2.5
f 2.4 A 2.4,5.7 1.5,1.5 180,80; L .9,5.7 .9,0; L 0,4.8 2.4,4.8
g 4 A 2,2.5 2,2.5 0,360; L 4,5 4,-.3; A 2,-.3 2,1.8 0,-145
h 4 L 0,7.2 0,0; A 2,2.9 2,2.1 180,0; L 4,2.9 4,0
i 0 L 0,5 0,0; D 0,6.9
j 1 L 1,5 1,-.8; A -.1,-.8 1.1,1.2 0,-85; D 1,6.9
k 3.6 L 0,7.2 0,0; L 3.4,5 0,1.8; L 1.3,3 3.6,0
l 0 L 0,7.2 0,0
m 6.4 L 0,5 0,0; A 1.6,3.2 1.6,1.8 180,0; L 3.2,3.2 3.2,0; A 4.8,3.2 1.6,1.8 180,0; L 6.4,3.2 6.4,0
n 4 L 0,5 0,0; A 2,2.9 2,2.1 180,0; L 4,2.9 4,0
o 4 A 2,2.5 2,2.5 0,360
p 4 L 0,5 0,-2; A 2,2.5 2,2.5 0,360
q 4 A 2,2.5 2,2.5 0,360; L 4,5 4,-2
r 2.2 L 0,5 0,0; A 2,2.8 2,2.2 180,80
s 3.3 S 3.2,4.2 1.7,5 .2,3.8 1.7,2.6 3.3,1.25 1.7,0 0,.9
t 2.3 L .9,6.6 .9,1.3; A 2.1,1.3 1.2,1.3 180,275; L 0,5 2.3,5
u 4 L 0,5 0,2.1; A 2,2.1 2,2.1 180,360; L 4,5 4,0
v 3.8 L 0,5 1.9,0 3.8,5
w 5.8 L 0,5 1.5,0 2.9,4.6 4.3,0 5.8,5
x 3.6 L 0,5 3.6,0; L 3.6,5 0,0
y 3.8 L 0,5 1.9,.2; L 3.8,5 1.1,-2
z 3.5 L .1,5 3.4,5 0,0 3.5,0
A 5 L 0,0 2.5,7 5,0; L .9,2.4 4.1,2.4
B 4.4 L 2.4,3.7 0,3.7; L 2.4,7 0,7 0,0 2.6,0; A 2.4,5.3 1.7,1.7 90,-90; A 2.6,1.8 1.8,1.8 90,-90
C 5.2 A 3.2,3.5 3.2,3.5 45,315
D 5.2 L 1.8,7 0,7 0,0 1.8,0; A 1.8,3.5 3.4,3.5 90,-90
E 3.8 L 3.8,7 0,7 0,0 3.8,0; L 0,3.7 3.4,3.7
F 3.7 L 3.7,7 0,7 0,0; L 0,3.6 3.3,3.6
G 6 A 3.1,3.5 3.1,3.5 48,360; L 6.2,3.4 3.8,3.4
H 5 L 0,7 0,0; L 5,7 5,0; L 0,3.7 5,3.7
I 0 L 0,7 0,0
J 2.8 L 2.8,7 2.8,1.8; A 1.3,1.8 1.5,1.8 0,-150
K 4.6 L 0,7 0,0; L 4.4,7 0,2.6; L 1.5,3.9 4.6,0
L 3.5 L 0,7 0,0 3.5,0
M 6 L 0,0 0,7 3,1.8 6,7 6,0
N 5 L 0,0 0,7 5,0 5,7
O 6.4 A 3.2,3.5 3.2,3.5 0,360
P 4.2 L 2.3,3.2 0,3.2; L 0,0 0,7 2.3,7; A 2.3,5.1 1.9,1.9 90,-90
Q 6.4 A 3.2,3.5 3.2,3.5 0,360; L 4,1.8 6.4,-.7
R 4.4 L 2.3,3.2 0,3.2; L 0,0 0,7 2.3,7; A 2.3,5.1 1.9,1.9 90,-90; L 2.2,3.2 4.4,0
S 4.3 S 4.1,5.8 2.3,7 .35,5.4 2.2,3.7 4.3,1.9 2.1,0 0,1.3
T 4.8 L 0,7 4.8,7; L 2.4,7 2.4,0
U 5 L 0,7 0,2.5; A 2.5,2.5 2.5,2.5 180,360; L 5,2.5 5,7
V 4.8 L 0,7 2.4,0 4.8,7
W 7.2 L 0,7 1.8,0 3.6,6.2 5.4,0 7.2,7
X 4.6 L 0,7 4.6,0; L 4.6,7 0,0
Y 4.6 L 0,7 2.3,3.4 4.6,7; L 2.3,3.4 2.3,0
Z 4.5 L .1,7 4.4,7 0,0 4.5,0
0 4.2 A 2.1,3.5 2.1,3.5 0,360
1 4.2 L .8,5.7 2.4,7 2.4,0
2 4.2 A 2.1,5 2,2 170,-35; L 3.74,3.85 .1,0 4.2,0
3 4.2 A 2,5.3 1.8,1.7 150,-90; A 2,1.8 2.1,1.8 90,-150
4 4.2 L 3.1,0 3.1,7 0,2.1 4.3,2.1
5 4.2 L 3.8,7 .9,7 .6,3.9; A 2,2.2 2.2,2.2 130,-145
6 4.2 A 2.1,2.2 2.1,2.2 0,360; S 0,2.2 .4,4.4 1.5,6 3.2,7
7 4.2 L 0,7 4.2,7 1.5,0
8 4.2 A 2.1,5.3 1.7,1.7 0,360; A 2.1,1.8 2.1,1.8 0,360
9 4.2 A 2.1,4.8 2.1,2.2 0,360; S 4.2,4.8 3.8,2.6 2.7,1 1,0
. 0 D 0,.2
, .3 L .3,.4 -.1,-1.3
: 0 D 0,.4; D 0,4.4
; .3 D .3,4.4; L .3,.4 -.1,-1.3
! 0 L 0,7 0,2.3; D 0,.2
? 3.4 A 1.7,5.3 1.7,1.7 165,-50; S 2.79,4 1.8,3 1.7,2; D 1.7,.2
' 0 L 0,7.2 0,5.2
" 1.6 L 0,7.2 0,5.2; L 1.6,7.2 1.6,5.2
` .9 L 0,7.3 .9,6.2
( 1.3 A 3.5,2.7 3.5,5.8 130,230
) 1.3 A -2.2,2.7 3.5,5.8 -50,50
[ 1.4 L 1.4,7.4 0,7.4 0,-1.6 1.4,-1.6
] 1.4 L 0,7.4 1.4,7.4 1.4,-1.6 0,-1.6
{ 1.7 S 1.7,7.4 .9,6.8 .8,4.4 0,2.9; S 0,2.9 .8,1.4 .9,-1 1.7,-1.6
} 1.7 S 0,7.4 .8,6.8 .9,4.4 1.7,2.9; S 1.7,2.9 .9,1.4 .8,-1 0,-1.6
/ 2.8 L 0,-.8 2.8,7.4
\\ 2.8 L 0,7.4 2.8,-.8
| 0 L 0,7.6 0,-1.8
- 2.4 L 0,2.7 2.4,2.7
_ 4 L 0,-1.2 4,-1.2
+ 3.8 L 0,2.7 3.8,2.7; L 1.9,4.6 1.9,.8
= 3.8 L 0,3.7 3.8,3.7; L 0,1.7 3.8,1.7
* 2.8 L 1.4,7 1.4,4.2; L .2,6.3 2.6,4.9; L .2,4.9 2.6,6.3
# 4.6 L 1.1,0 1.9,7; L 3.1,0 3.9,7; L .4,4.6 4.8,4.6; L .1,2.3 4.5,2.3
% 5.6 A 1.3,5.6 1.3,1.4 0,360; A 4.3,1.4 1.3,1.4 0,360; L .9,0 4.7,7
& 5 S 5,0 2,4.1 1.3,5.6 2.2,7 3.3,5.7 2,4 .1,1.9 1.6,0 3.6,.8 4.8,3.2
@ 6.8 A 3.4,2.7 1.5,1.7 0,360; A 3.4,2.7 3.4,4 0,300; A 5.85,2.6 .95,1.6 180,360; L 4.9,4.2 4.9,2.6
$ 4.3 S 4.1,5.6 2.3,6.6 .35,5.2 2.2,3.6 4.3,2 2.1,.4 0,1.6; L 2.2,7.8 2.2,-.8
^ 3 L 0,5 1.5,7.2 3,5
~ 3.8 S 0,2.3 .9,3.2 2.8,2.2 3.8,3.1
< 3.2 L 3.2,5 0,2.7 3.2,.4
> 3.2 L 0,5 3.2,2.7 0,.4
· 1 D .5,2.7
• 1.4 A .7,2.7 .5,.5 0,360; D .7,2.7
… 4.4 D 0,.2; D 2.2,.2; D 4.4,.2
− 3.8 L 0,2.7 3.8,2.7
– 3.4 L 0,2.7 3.4,2.7
— 6 L 0,2.7 6,2.7
× 3.2 L .1,4.2 3.1,1.2; L 3.1,4.2 .1,1.2
√ 4.8 L 0,2.9 .9,3.3 2.2,0 4.4,7.6
≤ 3.4 L 3.4,5.6 0,3.5 3.4,1.4; L 0,0 3.4,0
≥ 3.4 L 0,5.6 3.4,3.5 0,1.4; L 0,0 3.4,0
→ 5 L 0,2.7 5,2.7; L 3.2,4.4 5,2.7 3.2,1
↵ 4.6 L 4.6,5.4 4.6,2.2 0,2.2; L 1.6,3.8 0,2.2 1.6,.6
⇥ 4.8 L 0,2.7 4.2,2.7; L 2.6,4.2 4.2,2.7 2.6,1.2; L 4.8,4.6 4.8,.8
∅ 4.4 A 2.2,2.8 2.2,2.4 0,360; L .2,0 4.2,5.6
∞ 6 A 1.5,2.7 1.5,1.5 0,360; A 4.5,2.7 1.5,1.5 0,360
° 1.8 A .9,6.3 .9,.9 0,360
’ .4 L .3,7.3 0,5.6
‘ .4 L .3,7.3 0,5.6
“ 1.8 L .3,7.3 0,5.6; L 1.7,7.3 1.4,5.6
” 1.8 L .3,7.3 0,5.6; L 1.7,7.3 1.4,5.6
ß 3.8 L 0,0 0,5.4; A 1.7,5.4 1.7,1.8 180,-80; A 1.9,1.8 1.9,1.85 90,-110
ı 0 L 0,5 0,0
ø 4 A 2,2.5 2,2.5 0,360; L 0,-.2 4,5.2
æ 6.4 A 1.7,2.5 1.7,2.5 0,360; A 4.8,2.5 1.6,2.5 0,318; L 3.2,2.5 6.4,2.5
■ 4 L 0,0 4,0 4,5 0,5 0,0; L 1,1 1,4; L 2,1 2,4; L 3,1 3,4
"""
_ACCENTS = {  # above the letter's middle, from 0 up
    "\u0300": "L -.9,1.3 .4,.1", "\u0301": "L .9,1.3 -.4,.1", "\u0302": "L -1.1,.1 0,1.3 1.1,.1",
    "\u0303": "S -1.3,.2 -.6,.9 .6,.3 1.3,1", "\u0304": "L -1.1,.6 1.1,.6",
    "\u0306": "A 0,1.2 1.1,1 180,360", "\u0307": "D 0,.6", "\u0308": "D -.9,.6; D .9,.6",
    "\u030a": "A 0,.7 .7,.7 0,360", "\u030c": "L -1.1,1.3 0,.1 1.1,1.3",
}  # fmt: skip
_BELOW = {"\u0327": "L 0,0 -.3,-1.6", "\u0328": "A .6,-.9 .7,.8 180,300"}
_SPACE, _BOX = 1.5, (4.0, "L 0,-.4 4,-.4 4,6.6 0,6.6 0,-.4")


def _table() -> dict[str, tuple[float, str]]:
    table = {}
    for line in _LETTERS.strip().splitlines():
        letter, width, path = line.split(" ", 2)
        table[letter] = (float(width), path)
    return table


_GLYPHS = _table()


def width(text: str, size: float) -> float:
    """How wide a line of text is laid out at that size, in the size's unit.

    The same on every machine, whatever fonts it has: letters of other scripts are estimated.
    """
    return sum(_advance(letter) for letter in _composed(text)) * size / EM


@lru_cache(maxsize=4096)
def strokes(letter: str) -> tuple[Points, ...]:
    """The lines of one letter (with its accents), each [n, 2], y up."""
    base, marks = letter[0], letter[1:]
    if base == " ":
        return ()
    base = "ı" if base == "i" and marks else base
    wide, path = _GLYPHS.get(base, _BOX)
    lines = _lines(path)
    top = 7.7 if base.isupper() or base in "bdfhklß" else 5.7
    for mark in marks:
        at, drawn = (top, _ACCENTS[mark]) if mark in _ACCENTS else (0.0, _BELOW.get(mark, ""))
        move = np.array([wide / 2, at])
        lines += [line + move for line in _lines(drawn)] if drawn else []
    return tuple(lines)


def placed(text: str, size: float) -> tuple[list[tuple[str, float]], float]:
    """Each part of a line and where it starts, and where the line ends, in the size's unit.

    A part is a letter of this alphabet, a stretch of letters that a font has, or a box.
    """
    at, places = 0.0, []
    for part in _parts(text):
        places.append((part, at * size / EM))
        at += fonts.width(part) * EM if _foreign(part) else _advance(part)
    return places, (at - GAP if places and not _foreign(places[-1][0]) else at) * size / EM


def boxed(text: str) -> str:
    """The letters of a line that are drawn as boxes."""
    return "".join(part[0] for part in _parts(text) if part[0] not in (*_GLYPHS, " ")
                   and not _foreign(part))  # fmt: skip


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    stretch = ""
    for letter in (*_composed(text), ""):
        strange = bool(letter) and letter[0] not in _GLYPHS and letter[0] != " "
        if strange or (stretch and letter == " "):  # words of one script keep their order
            stretch += letter
            continue
        if stretch:
            whole = unicodedata.normalize("NFC", stretch.rstrip(" "))
            alone = [c for c in _composed(whole) if unicodedata.category(c[0]) not in JOINED]
            parts += [whole] if fonts.font_of(whole) else alone  # where no one font has them all
            parts += [" "] * (len(stretch) - len(stretch.rstrip(" ")))
            stretch = ""
        parts += [letter] if letter else []
    return tuple(parts)


def _foreign(part: str) -> bool:
    """Whether a part is drawn in a font of the machine."""
    return part[:1] not in _GLYPHS and part[:1] != " " and fonts.font_of(part) is not None


def _composed(text: str) -> list[str]:
    """Letters with the marks that belong to them; accents apart from letters of this alphabet."""
    letters: list[str] = []
    for sign in unicodedata.normalize("NFC", text):
        apart = unicodedata.normalize("NFD", sign)
        if letters and unicodedata.combining(sign):
            letters[-1] += sign
        else:
            letters.append(apart if apart[0] in _GLYPHS else sign)
    return letters


def _advance(letter: str) -> float:
    if letter[0] == " ":
        return _SPACE + GAP
    if letter[0] not in _GLYPHS and unicodedata.east_asian_width(letter[0]) in ("W", "F"):
        return EM
    return _GLYPHS.get(letter[0], _BOX)[0] + GAP


def _lines(path: str) -> list[Points]:
    lines = []
    for part in path.split(";"):
        kind, *rest = part.split()
        numbers = np.array([[float(n) for n in pair.split(",")] for pair in rest])
        lines.append({"L": _straight, "D": _dot, "A": _arc, "S": _curve}[kind](numbers))
    return lines


def _straight(points: Points) -> Points:
    return points


def _dot(points: Points) -> Points:
    return _arc(np.array([points[0] + (0.0, 0.1), (0.22, 0.22), (0.0, 360.0)]))


def _arc(numbers: Points) -> Points:
    (cx, cy), (rx, ry), (start, stop) = numbers
    steps = max(4, int(abs(stop - start) / 15))
    angle = np.radians(np.linspace(start, stop, steps + 1))
    return np.stack([cx + rx * np.cos(angle), cy + ry * np.sin(angle)], axis=1)


def _curve(points: Points, steps: int = 5) -> Points:
    """Catmull-Rom: through every point, smooth at each."""
    ends = np.concatenate([points[:1] * 2 - points[1:2], points, points[-1:] * 2 - points[-2:-1]])
    t = np.linspace(0, 1, steps, endpoint=False)[:, None]
    pieces = []
    for a, b, c, d in zip(ends, ends[1:], ends[2:], ends[3:], strict=False):
        pieces.append(
            b
            + t * (c - a) / 2
            + t**2 * (a - 2.5 * b + 2 * c - d / 2)
            + t**3 * (1.5 * (b - c) + (d - a) / 2)
        )
    return np.concatenate([*pieces, points[-1:]])


@lru_cache(maxsize=8192)
def coverage(letter: str, size: float, angle: float) -> tuple[NDArray[np.float32], int, int] | None:
    """How much of each pixel a letter covers, and where its corner is from the letter's start.

    `size` in pixels, `angle` in degrees clockwise; the origin is on the baseline.
    """
    if _foreign(letter):
        return fonts.coverage(letter, size, angle)
    lines = strokes(letter)
    if not lines:
        return None
    turn = math.radians(angle)
    spin = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    paths = [(line * (1, -1) * (size / EM)) @ spin for line in lines]
    half = max(0.5, WEIGHT / 2 * size / EM)
    points = np.concatenate(paths)
    low, high = points.min(axis=0) - half - 1, points.max(axis=0) + half + 1
    left, top = (math.floor(edge) for edge in low)
    right, bottom = (math.ceil(edge) for edge in high)
    x, y = np.meshgrid(np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5)
    a = np.concatenate([path[:-1] for path in paths])[:, :, None, None]
    b = np.concatenate([path[1:] for path in paths])[:, :, None, None]
    along = b - a
    length = np.maximum((along**2).sum(axis=1), 1e-9)
    t = np.clip(((x - a[:, 0]) * along[:, 0] + (y - a[:, 1]) * along[:, 1]) / length, 0.0, 1.0)
    away = np.hypot(a[:, 0] + t * along[:, 0] - x, a[:, 1] + t * along[:, 1] - y).min(axis=0)
    return np.clip(half - away + 0.5, 0.0, 1.0).astype(np.float32), left, top
