"""Whether a site's logits follow what is done to its projections, by what the steps show.

Not every layer whose logits go their own way is known by its names, so each is watched: where a
head is scaled back time and again and its logits stay, scaling would drive its weights to 0. Where
the optimizer makes the weights grow as fast as they are scaled, logits stay and do follow: so the
weights are looked at too, in the steps that scaled a head far back.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from limelight.torch.clipping.projections import OTHERWISE
from limelight.torch.clipping.weights import Projections

MOVES = 2 / 3  # a head whose weights, queries' times keys', fell to this or less
STAYS = 0.9  # and that keeps this much of its logits
STEPS = 3  # times running does not follow its projections
GROWS = 1.5  # logits so many times any for which it was left alone or tried: it is tried again
CALLER = 4  # whose line a warning names: that of step(), which torch.no_grad wraps


class Followed:
    """One site: the factors that it is scaled with, which are 1 where scaling would not help."""

    def __init__(self, projections: Projections) -> None:
        self.site, self.projections = projections.site, projections
        unknown = [math.inf] * projections.queries.heads
        self._unknown = self._before = unknown  # of heads that were scaled far back, else infinite
        self._size = self._earlier = unknown  # of the weights in the last pass, and in that before
        self._stayed = [0] * len(unknown)
        self._most = [0.0] * len(unknown)  # how far logits went when it was left alone or tried
        self._left = self._said = self._told = False

    def factors(self, limit: float, figures: Sequence[Sequence[float]]) -> list[float]:
        """By the rows of `figures.figures`. Why a head or a site is left alone is said once."""
        largest, reach, negative = figures
        hopeless = [head for head, factor in enumerate(negative) if factor >= 0]
        if hopeless and not self._said:
            self._said = True
            warnings.warn(
                f"{self.site}: a bias on the logits of head {hopeless[0]} reaches the limit of "
                f"{limit:g} by itself (its largest logit is {largest[hopeless[0]]:.4g}), and "
                f"QKClip scales queries and keys alone: heads of which that is so are left as they "
                f"are. Give a higher limit, or hold the bias down",
                stacklevel=CALLER,
            )
        least = self.projections.least()
        factors = [min(-factor, least) if -1 < factor < 0 else 1.0 for factor in negative]
        for head, now in enumerate(reach):
            stays = STAYS * self._before[head] <= now < math.inf
            fell = self._size[head] <= MOVES * self._earlier[head]
            self._stayed[head] = self._stayed[head] + 1 if stays and fell else 0
        longest = max(self._stayed)
        if not self._left and longest >= STEPS:
            self._left = True
            self._most = list(map(max, self._most, reach))
            self._tell(limit, largest, self._stayed.index(longest))
        elif self._left and any(
            now > GROWS * most for most, now in zip(self._most, reach, strict=True)
        ):
            # Those of activations that grow as fast as the weights are scaled stay too, until now.
            self._left = False
            self._most = list(map(max, self._most, reach))
        factors = [1.0] * len(factors) if self._left else factors
        self._before = [now if factor <= MOVES else math.inf
                        for now, factor in zip(reach, factors, strict=True)]  # fmt: skip
        return factors

    def _tell(self, limit: float, largest: Sequence[float], head: int) -> None:
        if self._told:
            return
        self._told = True
        warnings.warn(
            f"{self.site} does not follow its projections: head {head} was scaled back to "
            f"{limit:g} in {STEPS} steps running, and its largest logit still is "
            f"{largest[head]:.4g}. Its queries or keys may be normalised or clamped after the "
            f"projection, or made by other weights too. QKClip leaves {self.site} alone while they "
            f"grow no further; {OTHERWISE}",
            stacklevel=CALLER + 1,
        )

    def scaled(self) -> None:
        """The weights are now what the next pass will see."""
        far = min(self._before) < math.inf
        size = self.projections.sizes() if far else self._unknown
        self._earlier, self._size = self._size, size
