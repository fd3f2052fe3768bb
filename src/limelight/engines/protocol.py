"""What an engine has to offer: how it runs a call, and how it looks at the weights.

An engine is a module with the functions of `Runs`; the table says which module looks for it, with
the functions of `Looks`. Arrays come in and go out as one kind: NumPy arrays, or torch tensors on
the call's device where the table says that the engine takes them.
"""

from __future__ import annotations

from typing import Any, Protocol

from limelight.call import Call
from limelight.reference import Gradients, State


class Runs(Protocol):
    """How an engine computes attention."""

    def missing(self) -> str | None:
        """Why it cannot run on this machine, or None."""

    def cannot(self, call: Call) -> str | None:
        """Why it cannot do this call, beyond what the table says, or None."""

    def forward(self, call: Call, *, health: bool) -> State:
        """Output and each row's logsumexp; with health also max_logit and entropy."""

    def backward(
        self,
        call: Call,
        state: State,
        grad_output: Any,
        *,
        grad_logsumexp: Any = None,
        grad_entropy: Any = None,
        with_bias: bool = True,
    ) -> Gradients:
        """The gradients by every input, each in its shape and dtype; the bias's if it is wanted.

        Those of the row statistics are [B, Hq, Nq] in their dtype, None for 0: with them a logit's
        gradient is P·(dP − D + grad_logsumexp − grad_entropy·(ln P + entropy)), and a sink's the
        same with dP = 0 (reference.gradients). Where grad_entropy is given the state has its
        entropy.
        """


class RunsQuickly(Protocol):
    """The shortest way, of an engine whose row in the table says `quick`."""

    def quick(self, query: Any, key: Any, value: Any, health: bool) -> State | None:
        """`forward` without a Call: arrays that fit as they are, [B, H, N, D], and nothing else.

        None where there is more to do or to say.
        """

    def forward_tensors(
        self, query: Any, key: Any, value: Any, band: tuple[int, int] | None, scale: float,
        softcap: float | None, shared: bool,
    ) -> Any:  # fmt: skip
        """The output of torch tensors of four axes on the engine's device; None where not so.

        `shared` says whether query heads may share key heads.
        """


class RunsPages(Protocol):
    """Keys and values where a server keeps them, of an engine whose row says `pages`."""

    def forward_paged(
        self, query: Any, key: Any, value: Any, table: Any, page: int, spans: Any, sinks: Any,
        scale: float, softcap: float | None, health: bool,
    ) -> State | None:  # fmt: skip
        """`forward` of torch tensors: query [B, Hq, Nq, D], table int32 [B, pages].

        key and value are all rows there are, [Hk, rows, D]; a page has `page` of them, a power of
        two; spans, int32 [B, 1, Nq, 1, 2], are the keys that each query sees. None where its
        kernels do not take such head sizes.
        """


class Looks(Protocol):
    """How an engine looks at the weights exp(logit − logsumexp); logsumexp is [B, Hq, Nq]."""

    def pool(self, call: Call, logsumexp: Any, row_edges: Any, column_edges: Any, kind: str) -> Any:
        """The "max" or "mean" of each bin's allowed weights, NaN where it has none.

        Edges ascend, and bin p holds the cells from edge p up to edge p + 1; only the rows between
        them are read of the logsumexp. Returns float32 [B, Hq, P, Q].
        """

    def received(self, call: Call, logsumexp: Any) -> Any:
        """The weights that each key gets, summed over the queries: [B, Hq, Nk]."""

    def block(self, call: Call, logsumexp: Any, rows: Any, columns: Any) -> Any:
        """The weights of chosen rows × columns, 0 where not allowed: [B, Hq, R, C]."""

    def strongest(self, call: Call, logsumexp: Any, rows: Any, k: int) -> tuple[Any, Any]:
        """The columns of the k largest weights of each chosen row, and those: each [B, Hq, R, k].

        The strongest first, the lower column first among equals; column −1 and weight 0 where a row
        has fewer than k keys.
        """
