"""What one site did in a batch of texts, from its weights, some rows at a time.

The weights of a block of rows are made anew from queries, keys and the logsumexp of the model's own
pass, on whatever device these are, and only sums over them are kept. What does not depend on the
weights (which cells are allowed, which are a kind's targets) is worked out once for all layers that
share a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limelight.arrays import as_numpy
from limelight.heads import Kind, looks
from limelight.heads.kinds import STEPS
from limelight.health import MEANS, Health
from limelight.hf.attention import Asked
from limelight.looking.weights import FAR
from limelight.masks import as_mask
from limelight.masks.allowed import Allowed
from limelight.masks.tensors import cells_of
from limelight.survey import bins
from limelight.survey.tally import Measured, Text

Array = NDArray[Any]
CELLS = 1 << 24  # weights held at a time: 64 MB of float32
ROWS = 64  # at a time on a CPU, where no row sees ahead: 8 texts of 350 tokens in half the time


class Batch:
    """Texts that go through the model together, padded at their ends, and where kinds look in them.

    `cells` are who looks and at whom: the group (kind · texts + text), row and column of each.
    """

    def __init__(self, texts: Sequence[Text], kinds: Sequence[Kind]) -> None:
        self.texts, self.kinds = texts, kinds
        self.lengths = np.array([len(text.ids) for text in texts], np.int64)
        self.length = int(self.lengths.max())
        self.real = np.arange(self.length) < self.lengths[:, None]  # [B, n]
        self.apart = {kind.name: at for at, kind in enumerate(kinds)
                      if kind.name in ("sink", "uniform") and kind.targets is None}  # fmt: skip
        self.cells = self._cells()

    def _cells(self) -> Array:
        found = []
        for at, text in enumerate(self.texts):
            n = len(text.ids)
            places = looks(text.tokens, self.kinds)
            for k, kind in enumerate(self.kinds):
                if kind.targets is None and kind.name in STEPS:
                    row = np.arange(n)
                    column = row + STEPS[kind.name]
                    there = (column >= 0) & (column < n)
                    places[kind.name] = row[there], column[there]
                if kind.name in places:
                    row, column = places[kind.name]
                    group = np.full(len(row), k * len(self.texts) + at)
                    found.append(np.stack([group, np.full(len(row), at), row, column]))
        whole = np.concatenate(found, axis=1) if found else np.zeros((4, 0), np.int64)
        return whole[:, np.lexsort((whole[3], whole[2], whole[0]))]


class Ground:
    """What one mask lets a batch see: all that is known of a site before its weights."""

    def __init__(self, batch: Batch, mask: Any, bias: Tensor | None, device: torch.device) -> None:
        n, texts = batch.length, len(batch.texts)
        allowed = Allowed(n, n) if mask is None else as_mask(mask).allowed(n, n)
        real = torch.from_numpy(batch.real).to(device)
        cells = cells_of(allowed, bias, slice(0, n), device)
        self.cells = (cells & real[:, None, :, None] & real[:, None, None, :]).contiguous()
        seen = self.cells.cpu().numpy()  # [B, H|1, n, n]
        self.keys = seen.sum(axis=-1, dtype=np.int64)  # [B, H|1, n]
        self.ahead = bool(np.triu(seen, 1).any())
        self.pairs = _pairs(seen)  # [B, H|1, bins]
        self.place_rows = _by_place(self.keys > 0)  # [B, H|1, bins]
        self._kinds(batch, seen, texts, device)
        self._sinks(batch, seen, device)

    def _kinds(self, batch: Batch, seen: Array, texts: int, device: torch.device) -> None:
        """The targets that can be looked at from rows that have a choice, and the rows judged."""
        group, text, row, column = batch.cells
        heads = seen.shape[1]
        flags = seen[text, :, row, column] & (self.keys[text, :, row] >= 2)  # [cells, H|1]
        some = flags.any(axis=1)
        group, text, row, column, flags = (part[some] for part in (group, text, row, column, flags))
        self.kind_rows = np.zeros((len(batch.kinds), texts, heads), np.int64)
        self.chance = np.zeros((len(batch.kinds), texts, heads))
        if len(group):
            starts = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(row, prepend=-1))
            count = np.add.reduceat(flags.astype(np.int64), starts, axis=0)  # targets of each row
            keys = np.maximum(self.keys[text[starts], :, row[starts]], 1)
            own = group[starts]
            np.add.at(self.kind_rows.reshape(-1, heads), own, count > 0)
            np.add.at(self.chance.reshape(-1, heads), own, count / keys)
        order = np.argsort(row, kind="stable")
        self.rows = row[order]  # ascending, so that a block of rows is a slice
        self.at = [torch.from_numpy(part[order]).to(device) for part in (group, text, row, column)]
        self.flags = None if heads == 1 else torch.from_numpy(flags[order]).to(device)

    def _sinks(self, batch: Batch, seen: Array, device: torch.device) -> None:
        """The first key of each row, where it begins a text and lies before the row."""
        first = np.where(seen.any(axis=-1), seen.argmax(axis=-1), 0)  # [B, H|1, n]
        begins = np.take_along_axis(first, first, axis=-1) == first
        judged = (self.keys >= 2) & begins & (first < np.arange(batch.length))
        self.first = torch.from_numpy(first).to(device)
        self.resting = torch.from_numpy(judged).to(device)
        if "sink" in batch.apart:
            at = batch.apart["sink"]
            self.kind_rows[at] = judged.sum(axis=-1)
            self.chance[at] = np.where(judged, 1.0 / np.maximum(self.keys, 1), 0.0).sum(axis=-1)


def measure(batch: Batch, ground: Ground, asked: Asked, health: Health) -> Measured:
    """All that a survey keeps of one site in one batch."""
    heads, n = asked.query.shape[1], batch.length
    rows = _rows(batch, ground, health, heads)
    lost = np.isnan(rows.max_prob).sum(axis=-1)  # [B, H]
    bad = lost > 0
    kinds = len(batch.kinds)
    mass = torch.zeros((kinds * len(batch.texts), heads), dtype=torch.float64,
                       device=asked.query.device)  # fmt: skip
    sink = torch.zeros((len(batch.texts), heads), dtype=torch.float64, device=mass.device)
    received = torch.zeros((len(batch.texts), heads, n), dtype=torch.float64, device=mass.device)
    distances = torch.zeros((heads, 2 * n - 1), dtype=torch.float64, device=mass.device)
    used = int(bins.of_place(np.array([n - 1]))[0]) + 1
    places = torch.zeros((heads, used, used), dtype=torch.float64, device=mass.device)
    for start, stop, weights in _blocks(asked, health.logsumexp, ground, bad):
        _add_kinds(mass, sink, ground, weights, start, stop)
        received[:, :, : weights.shape[3]] += weights.sum(dim=2)
        distances += _by_distance(weights, start, n, ground.ahead)
        places += _placed(weights, start, stop, used)
    found = mass.cpu().numpy().reshape(kinds, len(batch.texts), heads)
    if "sink" in batch.apart:
        found[batch.apart["sink"]] = sink.cpu().numpy()
    judged = rows.judged
    kind_rows, chance = (np.array(np.broadcast_to(table, found.shape))
                         for table in (ground.kind_rows, ground.chance))  # fmt: skip
    if "uniform" in batch.apart:
        at = batch.apart["uniform"]
        kind_rows[at] = chance[at] = judged.sum(axis=-1)
        found[at] = np.where(judged, rows.spread, 0.0).sum(axis=-1)
    for table in (found, kind_rows, chance):
        table[:, bad] = 0
    figures = np.stack([np.where(judged, getattr(rows, name), 0.0).sum(axis=-1, dtype=np.float64)
                        for name in MEANS])  # fmt: skip
    whole = np.zeros((heads, *(len(bins.PLACE) - 1,) * 2))
    whole[:, :used, :used] = places.cpu().numpy()
    given = received.cpu().numpy().transpose(0, 2, 1)[batch.real]  # [tokens, H]
    logit = np.where(np.isnan(rows.max_logit), -np.inf, rows.max_logit)
    return Measured(
        rows=(rows.keys > 0).sum(axis=-1), judged=judged.sum(axis=-1), not_a_number=lost,
        figures=figures, max_logit=logit.max(axis=(0, 2)).astype(np.float64),
        kind_rows=kind_rows, mass=found, chance=chance,
        distances=_binned(distances.cpu().numpy(), n), pairs=_sound(ground.pairs, bad),
        places=whole, place_rows=_sound(ground.place_rows, bad),
        histograms={"max_prob": _histogram(rows.max_prob, judged),
                    "spread": _histogram(rows.spread, judged)},
        received=given,
    )  # fmt: skip


def _rows(batch: Batch, ground: Ground, health: Health, heads: int) -> Health:
    """The health of the rows, those that are padding or see nothing as empty ones."""
    shape = (len(batch.texts), heads, batch.length)
    keys = np.broadcast_to(ground.keys, shape)
    empty = keys == 0
    said = [np.array(as_numpy(getattr(health, name).detach().float()))
            for name in ("max_logit", "logsumexp", "entropy")]  # fmt: skip
    for array, nothing in zip(said, (-np.inf, -np.inf, 0.0), strict=True):
        array[empty] = nothing
    outcomes = None
    if health.outcomes is not None:
        outcomes = keys + (as_numpy(health.outcomes) - as_numpy(health.keys))
    max_logit, logsumexp, entropy = said
    return Health(max_logit, logsumexp, entropy, keys, outcomes)


def _blocks(
    asked: Asked, logsumexp: Tensor, ground: Ground, bad: Array
) -> Iterator[tuple[int, int, Tensor]]:
    """Blocks of rows, first and last, with their weights [B, H, rows, keys]; 0 where not allowed.

    The keys are all n, or those up to the last row where none sees what comes after it.
    """
    query, key = asked.query.detach().float(), asked.key.detach().float()
    texts, heads, n, size = query.shape
    shared, group = key.shape[1], heads // key.shape[1]
    rule = asked.rule
    scale = size**-0.5 if rule["scale"] is None else rule["scale"]
    lost = torch.from_numpy(bad).to(query.device)[:, :, None, None] if bad.any() else None
    step = max(1, min(n, CELLS // max(1, texts * heads * n)))
    far = bool(((logsumexp.detach().abs() > FAR) & logsumexp.detach().isfinite()).any())
    if not ground.ahead and query.device.type == "cpu":  # of later keys nothing is computed
        step = min(step, ROWS)
    for start in range(0, n, step):
        stop = min(start + step, n)
        keys = n if ground.ahead else stop
        some = query[:, :, start:stop].reshape(texts, shared, group * (stop - start), size)
        logits = torch.matmul(some * scale, key[:, :, :keys].transpose(2, 3))
        logits = logits.view(texts, heads, stop - start, keys)
        if rule["softcap"] is not None:
            logits.div_(rule["softcap"]).tanh_().mul_(rule["softcap"])
        if rule["bias"] is not None:
            bias = rule["bias"].detach().float()[..., :keys]
            logits += bias[:, :, start:stop] if bias.shape[2] > 1 else bias
        hidden = ~ground.cells[:, :, start:stop, :keys]
        if far:
            _take_off(logits.masked_fill_(hidden, -torch.inf), rule["sinks"])
        else:
            logits.sub_(logsumexp[:, :, start:stop, None].detach().float())
            logits.masked_fill_(hidden, -torch.inf)
        weights = logits.exp_().clamp_(max=1.0)
        yield start, stop, weights if lost is None else weights.masked_fill_(lost, 0.0)


def _take_off(logits: Tensor, sinks: Tensor | None) -> None:
    """The logsumexp of rows [B, H, rows, n], as largest logit and sum: large ones need both."""
    top = logits.amax(-1, keepdim=True)
    others = None if sinks is None else sinks.detach().float()[:, None, None]
    if others is not None:
        top = torch.maximum(top, others)
    top = torch.where(top == -torch.inf, 0.0, top)
    total = logits.sub_(top).exp().sum(-1, keepdim=True)
    if others is not None:
        total = total + (others - top).exp()
    logits.sub_(torch.where(total == 0, 1.0, total).log())


def _add_kinds(
    mass: Tensor, sink: Tensor, ground: Ground, weights: Tensor, start: int, stop: int
) -> None:
    low, high = np.searchsorted(ground.rows, (start, stop))
    group, text, row, column = (part[low:high] for part in ground.at)
    cells = weights[text, :, row - start, column].double()  # [cells, H]
    if ground.flags is not None:
        cells *= ground.flags[low:high]
    mass.index_add_(0, group, cells)
    first = ground.first[:, :, start:stop].expand(*weights.shape[:3])
    resting = weights.gather(3, first[..., None])[..., 0]
    sink += torch.where(ground.resting[:, :, start:stop], resting, 0.0).sum(dim=2)


def _by_distance(weights: Tensor, start: int, n: int, ahead: bool) -> Tensor:
    """Sums over texts and rows by key − query + n − 1: [H, 2n − 1], from one strided look.

    Row a of a block holds query start + a, so one row further the same distance lies one place
    further, and a view with rows of one key more has it in one column. What such a view reads of
    the row before are keys ahead of it: 0 in a causal mask; else the rows are set in zeros first.
    """
    texts, heads, rows, keys = weights.shape
    found = weights.new_zeros((heads, 2 * n - 1), dtype=torch.float64)
    if ahead:
        wide = weights.new_zeros((texts * heads, n + rows * 2 * n))
        wide[:, n:].view(texts * heads, rows, 2 * n)[:, :, :n] = weights.flatten(0, 1)
        shape = (texts, heads, rows, 2 * n - 1)
        stride = (heads * wide.shape[1], wide.shape[1], 2 * n + 1, 1)
        return wide.as_strided(shape, stride, start + 1).sum(dim=2).double().sum(dim=0)
    found[:, n - 1 - start : n] += weights[:, :, 0, : start + 1].double().sum(dim=0)
    if rows > 1:
        shape = (texts, heads, rows - 1, keys)
        stride = (heads * rows * keys, rows * keys, keys + 1, 1)
        behind = weights.as_strided(shape, stride, start + 2).sum(dim=2)
        found[:, n - keys : n] += behind.double().sum(dim=0)
    return found


def _placed(weights: Tensor, start: int, stop: int, used: int) -> Tensor:
    """Sums over texts by the bins of query and key: [H, bins, bins]."""
    keys, device = weights.shape[3], weights.device
    which = torch.from_numpy(bins.of_place(np.arange(keys))).to(device)
    one = torch.nn.functional.one_hot(which, used).float()
    across = torch.matmul(weights, one)  # [B, H, rows, bins]
    return torch.matmul(one[start:stop].T, across).double().sum(dim=0)


def _binned(distances: Array, n: int) -> Array:
    """[H, 2n − 1] to the bins of distances."""
    which = bins.of_distance(np.arange(n - 1, -n, -1))
    found = np.zeros((len(distances), 2 * bins.BEHIND))
    np.add.at(found.T, which, distances.T)
    return found


def _pairs(seen: Array) -> Array:
    """How many allowed cells lie at each distance: [B, H|1, bins]."""
    texts, heads, n, _ = seen.shape
    found = np.zeros((texts, heads, 2 * bins.BEHIND), np.int64)
    which = bins.of_distance(np.arange(n - 1, -n, -1))
    for at in np.ndindex(texts, heads):
        row, column = np.nonzero(seen[at])
        count = np.bincount(column - row + n - 1, minlength=2 * n - 1)
        np.add.at(found[at], which, count)
    return found


def _by_place(rows: Array) -> Array:
    """How many of the rows [.., n] stand in each bin of places."""
    found = np.zeros((*rows.shape[:2], len(bins.PLACE) - 1), np.int64)
    which = bins.of_place(np.arange(rows.shape[2]))
    np.add.at(found.transpose(2, 0, 1), which, rows.transpose(2, 0, 1))
    return found


def _sound(counts: Array, bad: Array) -> Array:
    """Counts [B, H|1, bins] over the texts in which a head's rows are numbers: [H, bins]."""
    return np.asarray(np.where(bad[:, :, None], 0, counts).sum(axis=0))


def _histogram(shares: Array, judged: Array) -> Array:
    """How many judged rows [B, H, n] have a share in each twentieth: [H, LEVELS]."""
    heads = shares.shape[1]
    with np.errstate(invalid="ignore"):
        level = np.clip(np.nan_to_num(shares) * bins.LEVELS, 0, bins.LEVELS - 1).astype(np.int64)
    head = np.broadcast_to(np.arange(heads)[:, None], shares.shape)
    flat = np.bincount((head * bins.LEVELS + level)[judged], minlength=heads * bins.LEVELS)
    return flat.reshape(heads, bins.LEVELS)
