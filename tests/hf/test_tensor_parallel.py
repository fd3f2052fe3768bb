"""Transformers' tensor parallel plans over two ranks: each attends with its heads on limelight."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from limelight import hf
from tests.torch.ranks import Pool

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LENGTHS = (7, 4)


def padded() -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    real = torch.arange(7) >= 7 - torch.tensor(LENGTHS)[:, None]  # padding on the left
    ids = torch.randint(1, 64, (2, 7), generator=drawn)
    return {"input_ids": ids * real, "attention_mask": real.long()}


def labelled() -> dict[str, torch.Tensor]:
    """With what each token is to be followed by; padding is followed by nothing."""
    given = padded()
    after = given["attention_mask"].cumsum(1) > 1
    return {**given, "labels": given["input_ids"].masked_fill(~after, -100)}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


def parts(group: Any, folder: str) -> tuple[Any, ...]:
    """What one of two ranks finds of the model whose heads it shares: numbers, tokens, heads."""
    from transformers.distributed import DistributedConfig

    rank = str(torch.distributed.get_rank())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
    transformers.utils.logging.set_verbosity_error()
    hf.register()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="limelight", distributed_config=DistributedConfig(tp_size=2)
    ).eval()
    loss = model(**labelled()).loss
    loss.backward()
    gradient = model.model.norm.weight.grad
    with torch.no_grad():
        logits = model(**padded()).logits
        written = model.generate(**padded(), max_new_tokens=5, do_sample=False, pad_token_id=0)
        with hf.capture(model) as cap:
            model(**padded())
    whole = [x.full_tensor() if hasattr(x, "full_tensor") else x for x in (logits, loss, gradient)]
    found = [x.detach().numpy() for x in whole]
    return *found, written.numpy(), [site.heads for site in cap], cap[1].weights(batch=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["Llama", "Gemma2"])
def test_a_plan_of_two_ranks_gives_what_one_gives(kind: str, ranks: Pool, tmp_path: Path) -> None:
    pytest.importorskip("transformers.distributed", reason="Transformers is older than its plans")
    torch.manual_seed(0)
    more = {} if kind == "Llama" else {"sliding_window": 3}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3, pad_token_id=0, **more,
    )  # fmt: skip
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    model.save_pretrained(tmp_path)
    model.set_attn_implementation("eager")
    right = model(**labelled())
    right.loss.backward()
    with torch.no_grad():
        weights = model(**padded(), output_attentions=True).attentions[1][1].numpy()
    written = model.generate(**padded(), max_new_tokens=5, do_sample=False, pad_token_id=0)
    answers = ranks.run(parts, str(tmp_path), wait=240)
    close = {"atol": 2e-4, "rtol": 1e-3}
    real = padded()["attention_mask"].bool()
    for rank, answer in enumerate(answers):
        assert isinstance(answer, tuple), answer
        logits, loss, gradient, tokens, heads, own = answer
        torch.testing.assert_close(torch.tensor(logits)[real], right.logits[real], **close)
        torch.testing.assert_close(torch.tensor(loss), right.loss, **close)
        torch.testing.assert_close(torch.tensor(gradient), model.model.norm.weight.grad, **close)
        assert tokens.tolist() == written.tolist()
        assert heads == [2, 2]
        rows = torch.tensor(own)[:, 3:, 3:]
        theirs = torch.tensor(weights)[2 * rank : 2 * rank + 2, 3:, 3:7]
        torch.testing.assert_close(rows.to(theirs.dtype), theirs, atol=1e-5, rtol=0)
