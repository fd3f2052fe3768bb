"""From torch to other places: ONNX's Attention, run by onnxruntime, and the operator by its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import limelight as ll
from limelight import hf
from limelight.call import prepare
from limelight.torch.operators import split

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(torch.nn.Module):
    def __init__(self, **rule: Any) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return ll.attention(query, key, key, **self.rule)


def some(*shape: int) -> torch.Tensor:
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    return mask


def in_onnx(
    model: Any, *given: torch.Tensor, **more: Any
) -> tuple[Callable[..., torch.Tensor], Counter[str]]:
    """The exported model, run by onnxruntime, and how often each operator stands in it."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    program = torch.onnx.export(model, given, dynamo=True, opset_version=23, verbose=False, **more)
    assert program is not None
    proto = program.model_proto
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )

    def run(*given: torch.Tensor) -> torch.Tensor:
        names = (place.name for place in session.get_inputs())
        named = {name: x.numpy() for name, x in zip(names, given, strict=True)}
        return torch.from_numpy(session.run(None, named)[0])

    return run, Counter(node.op_type for node in proto.graph.node)


# name, what is asked, and whether ONNX's operator can say it
RULES: list[tuple[str, Any, bool]] = [
    ("causal", lambda: {"mask": ll.Causal()}, True),
    ("window", lambda: {"mask": ll.Window(2, 1)}, True),
    ("lengths", lambda: {"mask": ll.Lengths([4, 9])}, True),
    ("booleans", lambda: {"mask": some(2, 1, 5, 9)}, True),
    ("bias", lambda: {"bias": torch.randn(6, 5, 9)}, True),
    ("bias under a mask", lambda: {"bias": torch.randn(5, 9), "mask": some(5, 9)}, True),
    ("softcap", lambda: {"softcap": 3.0}, True),
    ("softcap under a mask", lambda: {"softcap": 3.0, "mask": ll.Causal()}, False),
    ("sinks", lambda: {"sinks": torch.randn(6)}, False),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "whole"), [row[1:] for row in RULES], ids=[row[0] for row in RULES]
)
def test_onnx_gives_the_same_numbers(rule: Any, whole: bool) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 9, 8)
    model = Model(scale=0.3, **rule())
    exported, operators = in_onnx(model, query, key)
    assert operators["Attention"] == whole
    assert torch.allclose(exported(query, key), model(query, key), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "whole"),
    [({"mask": ll.Causal()}, True), ({"mask": ll.Window(2, 1), "softcap": 3.0}, False)],
    ids=["causal", "by its parts"],
)
def test_lengths_stay_free_in_onnx(rule: Any, whole: bool) -> None:
    """Exported once, run with other batches and lengths: a mask follows them."""
    torch.manual_seed(0)
    batch, queries, keys = (torch.export.Dim(name) for name in ("batch", "queries", "keys"))
    model = Model(**rule)
    exported, operators = in_onnx(
        model, torch.randn(2, 6, 5, 8), torch.randn(2, 2, 9, 8),
        dynamic_shapes=({0: batch, 2: queries}, {0: batch, 2: keys}),
    )  # fmt: skip
    assert operators["Attention"] == whole
    for b, nq, nk in ((2, 5, 9), (3, 4, 11), (1, 7, 7), (1, 1, 13)):
        query, key = torch.randn(b, 6, nq, 8), torch.randn(b, 2, nk, 8)
        assert torch.allclose(exported(query, key), model(query, key), atol=1e-6)


class Padded(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, real: torch.Tensor, places: torch.Tensor) -> Any:
        return self.model(ids, attention_mask=real, position_ids=places).logits


@pytest.mark.slow
def test_a_padded_batch_of_any_size_in_onnxruntime() -> None:
    hf.register()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=96, num_hidden_layers=2, use_cache=False,
        num_attention_heads=6, num_key_value_heads=2, attn_implementation="limelight",
        initializer_range=0.3,
    )  # fmt: skip
    model = Padded(transformers.LlamaForCausalLM(config).eval())

    def given(b: int, n: int) -> tuple[torch.Tensor, ...]:
        real = torch.ones(b, n, dtype=torch.int64)
        real[0, -2:] = 0
        return torch.randint(0, 64, (b, n)), real, torch.arange(n).expand(b, n).contiguous()

    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    exported, operators = in_onnx(model, *given(2, 9), dynamic_shapes=(free, free, free))
    assert operators["Attention"] == 2
    for sizes in ((2, 9), (3, 5), (1, 31)):
        asked = given(*sizes)
        with torch.no_grad():
            right = model(*asked)
        assert torch.allclose(exported(*asked), right, atol=2e-4)


@pytest.mark.parametrize("rule", [row[1] for row in RULES], ids=[row[0] for row in RULES])
def test_by_its_parts(rule: Any) -> None:
    """The registered decomposition against the operator, with health."""
    from torch._decomp import get_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.manual_seed(0)
    query, key = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 9, 8)
    given = rule()
    if isinstance(given.get("mask"), torch.Tensor):
        given["mask"][..., 1, :] = False  # a row without keys
    call = prepare(query, key, key, **given)
    arguments = (*split(call), "auto", True, "")
    operator = torch.ops.limelight.attention.default
    table = get_decompositions([operator])
    graph = make_fx(lambda: operator(*arguments), decomposition_table=table)()
    assert not any("limelight" in str(node.target) for node in graph.graph.nodes)
    for got, right in zip(graph(), operator(*arguments), strict=True):
        assert torch.allclose(got, right, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["smollm2", "bert", "vit"])
def test_models_in_onnxruntime(kind: str) -> None:
    hf.register()
    torch.manual_seed(0)
    small: dict[str, Any] = {
        "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 6, "attn_implementation": "limelight", "initializer_range": 0.3,
    }  # fmt: skip
    ids = torch.randint(0, 64, (2, 9))
    if kind == "smollm2":
        config = transformers.LlamaConfig(
            vocab_size=64, num_key_value_heads=2, use_cache=False, **small
        )
        model: Any = transformers.LlamaForCausalLM(config)
    elif kind == "bert":
        model = transformers.BertModel(transformers.BertConfig(vocab_size=64, **small))
    else:
        model = transformers.ViTModel(transformers.ViTConfig(image_size=24, patch_size=8, **small))
        ids = torch.randn(2, 3, 24, 24)
    model.eval()
    with torch.no_grad():
        right = model(ids)[0]
    exported, operators = in_onnx(model, ids)
    assert operators["Attention"] == 2
    assert torch.allclose(exported(ids), right, atol=2e-4)
