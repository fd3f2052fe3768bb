"""Heads switched off, replaced and measured in Transformers models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from limelight import hf
from limelight.errors import ArgumentError
from limelight.hf import inputs
from limelight.hf.projections import projections
from limelight.writing.pieces import SYMBOLS
from tests.hf import systems
from tests.hf.folders import tokenizer

ONE = [
    name for name in systems.NAMES if systems.find(name).kind in ("decoder", "encoder", "vision")
]
SENTENCE = "The curious cat watched the bird on the old oak"


def without_columns(model: Any, name: str, heads: list[int], of: int) -> None:
    """The same by weights alone: W_O does not read these heads."""
    module = model.get_submodule(name)
    weight = module.weight.data.T if isinstance(module, nn.Linear) else module.weight.data
    size = weight.shape[0] // of
    for head in heads:
        weight[head * size : (head + 1) * size] = 0


@pytest.mark.parametrize("name", ONE)
def test_off_is_a_projection_that_does_not_read_the_head(name: str) -> None:
    model, given = systems.build(name), systems.inputs(name)
    heads = projections(model)[1].heads
    whole = systems.run(model, "limelight", given)
    with hf.off(model, heads=[(1, 0), (1, heads - 1)], attention=[0]):
        found = systems.run(model, "limelight", given)
    assert (systems.run(model, "limelight", given) == whole).all()  # and it is on again
    assert (found - whole).abs().max() > 1e-3
    without_columns(model, projections(model)[1].name, [0, heads - 1], heads)
    without_columns(model, projections(model)[0].name, list(range(heads)), heads)
    truth = systems.run(model, "limelight", given)
    assert (found - truth).abs().max() <= 1e-9 * truth.abs().max()


def test_modernbert_s_heads_go_off() -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.ModernBertConfig(
        vocab_size=40, hidden_size=24, intermediate_size=32, num_hidden_layers=2, pad_token_id=0,
        num_attention_heads=3, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    model, given = transformers.ModernBertModel(config).double().eval(), torch.arange(3, 14)[None]
    model.set_attn_implementation("limelight")
    with torch.no_grad():
        whole = model(given).last_hidden_state
        with hf.off(model, heads=[(1, 2)]):
            found = model(given).last_hidden_state
        without_columns(model, "layers.1.attn.Wo", [2], 3)
        truth = model(given).last_hidden_state
    assert (found - whole).abs().max() > 1e-3
    torch.testing.assert_close(found, truth)


@pytest.mark.parametrize("name", ONE)
def test_the_projection_reads_what_the_heads_of_the_capture_give(name: str) -> None:
    """The heads that are cut are those that captures number."""
    import limelight

    model, given = systems.build(name), systems.inputs(name)
    read: dict[int, torch.Tensor] = {}
    known = projections(model)

    def keep(layer: int) -> Any:
        return lambda _, args: read.__setitem__(layer, known[layer].split(args[0]))

    for layer, projection in known.items():
        projection.module.register_forward_pre_hook(keep(layer))
    with torch.no_grad(), hf.capture(model, values=True) as seen:
        systems.run(model, "limelight", given)
    for site in seen:
        expected = limelight.attention(site.query, site.key, site.value, mask=site.mask, scale=site.scale,
                                       bias=site.bias, softcap=site.softcap, sinks=site.sinks)  # fmt: skip
        found = (
            read[site.layer]
            .reshape(len(expected), -1, *read[site.layer].shape[-2:])
            .transpose(1, 2)
            .numpy()
        )
        assert np.abs(found - expected).max() <= 1e-9 * np.abs(expected).max()


def test_patching_brings_another_text_s_heads() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    other = {**given, "input_ids": given["input_ids"].flip(1)}
    whole = systems.run(model, "limelight", given)
    with hf.patch(model, from_run=given, attention=[0, 1]):
        assert (
            systems.run(model, "limelight", given) - whole
        ).abs().max() <= 1e-12 * whole.abs().max()
    with hf.patch(model, from_run=other, heads=[(1, 2)]):
        found = systems.run(model, "limelight", given)
    assert (found - whole).abs().max() > 1e-3
    with hf.off(model, heads=[(1, 2)]), hf.patch(model, from_run=other, heads=[(1, 3)]):
        pass
    short = {name: tensor[:, :5] for name, tensor in given.items()}
    with (
        hf.patch(model, from_run=short, heads=[(0, 0)]),
        pytest.raises(ArgumentError, match=r"the other run is \(2, 5\).*and this one \(2, 13\)"),
    ):
        systems.run(model, "limelight", given)


@pytest.mark.parametrize("wrapped", [True, False])
def test_heads_of_a_compiled_model_go_off_too(wrapped: bool) -> None:
    """A graph that is finished calls no hooks."""
    model, given = systems.build("llama", torch.float32), systems.inputs("llama")
    torch._dynamo.reset()
    with torch.no_grad():
        with hf.off(model, heads=[(1, 0)]):
            expected = model(**given).logits
        compiled: Any = torch.compile(model, backend="eager") if wrapped else model
        if not wrapped:
            model.compile(backend="eager")
        whole = compiled(**given).logits
        with hf.off(compiled, heads=[(1, 0)]):
            torch.testing.assert_close(compiled(**given).logits, expected)
        torch.testing.assert_close(compiled(**given).logits, whole)
        assert not torch.allclose(whole, expected)


def test_off_by_the_mean_of_what_is_real() -> None:
    model, given = systems.build("llama"), systems.inputs("llama", "right")
    projection = projections(model)[1]
    read: list[torch.Tensor] = []
    hook = projection.module.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    systems.run(model, "limelight", given)
    hook.remove()
    mean = projection.split(read[0])[systems.padding("right").bool()].mean(0)
    with hf.off(model, heads=[(1, 4)], mean_over=given):
        read.clear()
        hook = projection.module.register_forward_pre_hook(lambda _, args: read.append(args[0]))
        systems.run(model, "limelight", given)
        hook.remove()
    found = projection.split(read[0])[:, :, 4]
    assert (found - mean[4]).abs().max() < 1e-12


def test_what_is_refused() -> None:
    llama, t5 = systems.build("llama"), systems.build("t5")
    with pytest.raises(ArgumentError, match="there is no head 6"), hf.off(llama, heads=[(0, 6)]):
        pass
    with pytest.raises(ArgumentError, match="there is no layer 2"), hf.off(llama, attention=[2]):
        pass
    with (
        pytest.raises(ArgumentError, match=r"two attentions, .* such as model\.encoder"),
        hf.off(t5, heads=[(0, 0)]),
    ):
        pass
    with pytest.raises(ArgumentError, match="takes a Transformers model"), hf.off(nn.Linear(2, 2)):
        pass
    with (
        pytest.raises(ArgumentError, match="a text needs a tokenizer"),
        hf.patch(llama, from_run="text", heads=[(0, 0)]),
    ):
        pass
    llama.model.layers[0].self_attn.joining = llama.model.layers[0].self_attn.o_proj
    for layer in llama.model.layers:
        layer.self_attn.joining = layer.self_attn.o_proj
        del layer.self_attn.o_proj
    with (
        pytest.raises(ArgumentError, match=r"no output projection .* \(looked for o_proj"),
        hf.off(llama, heads=[(0, 0)]),
    ):
        pass


def test_effects_take_a_transformers_model_beside_its_tokenizer() -> None:
    model, words = systems.build("llama", torch.float32), tokenizer()
    text = "the curious cat watched the"
    found = hf.effects(model, text, tokenizer=words, mean_over="the bird . the cat", loss=True)
    whole = hf.effects(hf.Loaded(model, words), text, mean_over="the bird . the cat", loss=True)
    np.testing.assert_array_equal(found.after, whole.after)
    assert found.tokens == whole.tokens
    assert found.source == "LlamaForCausalLM"
    for given in (model, hf.Loaded(model)):
        with pytest.raises(
            ArgumentError, match=r"LlamaForCausalLM comes without a tokenizer.*give "
        ):
            hf.effects(given, text)
    with pytest.raises(ArgumentError, match="tokenizer='cat' is no tokenizer"):
        hf.effects(model, text, tokenizer="cat")
    with pytest.raises(ArgumentError, match="the text is a list: give one string"):
        hf.effects(model, [text], tokenizer=words)
    for wrong in (None, nn.Linear(2, 2)):
        with pytest.raises(ArgumentError, match="takes a Transformers model"):
            hf.effects(wrong, text)


@pytest.mark.parametrize(("wrong", "said"), [
    (61, "there is no token 61: those of LlamaForCausalLM are numbered 0 to 60"),
    (-1, "there is no token -1"), (1.5, "1.5 names no token: give its text, or its number"),
    (["cat"], "names no token"), ("the cat", "'the cat' is 2 tokens for LlamaForCausalLM"),
])  # fmt: skip
def test_an_answer_is_one_token_that_the_model_knows(wrong: Any, said: str) -> None:
    model, words = systems.build("llama", torch.float32), tokenizer()
    with pytest.raises(ArgumentError, match=said):
        hf.effects(model, "the cat", tokenizer=words, answer="cat", against=wrong)


def test_an_encoder_has_no_next_token(minilm: hf.Loaded) -> None:
    with pytest.raises(ArgumentError, match=r"foretells no next token.*limelight\.hf\.off"):
        hf.effects(minilm, SENTENCE)


def test_a_token_is_named_by_its_text_where_decoding_takes_the_space_away() -> None:
    """As in Llama 2's kind of tokenizer: ▁the and the are two tokens, and decode alike."""
    tokenizers, transformers = (
        pytest.importorskip("tokenizers"),
        pytest.importorskip("transformers"),
    )
    pieces = ["<unk>", "▁", "t", "h", "e", "he", "the", "▁the", "▁▁", "▁▁▁"]
    words = {word: i for i, word in enumerate(pieces)}
    merges = [("h", "e"), ("t", "he"), ("▁", "the")]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, merges, unk_token="<unk>"))
    write, read = tokenizers.normalizers, tokenizers.decoders
    made.normalizer = write.Sequence([write.Prepend("▁"), write.Replace(" ", "▁")])
    made.decoder = read.Sequence([read.Replace("▁", " "), read.Fuse(), read.Strip(" ", 1, 0)])
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    assert words.decode([6]) == words.decode([7]) == "the"
    blanks = inputs.texts(np.array([[1, 8, 9]]), words)
    assert blanks == ((" ", "  ", "   "),)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, bos_token_id=1, eos_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        said = model(torch.tensor([[7, 7]])).logits[0, -1].log_softmax(-1)
    for answer, number in ((" the", 7), ("the", 6), (6, 6), (7, 7)):
        found = hf.effects(model, "the the", tokenizer=words, answer=answer)
        assert found.tokens == (" the", " the")
        assert found.answer == (" the" if number == 7 else "the")
        assert found.before == pytest.approx(float(said[number]), abs=1e-5)


def test_a_token_is_not_named_by_its_bytes() -> None:
    """é is spelled Ã© in a byte-level vocabulary; the text Ã© is two characters."""
    tokenizers, transformers = (
        pytest.importorskip("tokenizers"),
        pytest.importorskip("transformers"),
    )
    pieces = {piece: i for i, piece in enumerate((*SYMBOLS, "Ã©"))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(pieces, [("Ã", "©")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    config = transformers.LlamaConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, bos_token_id=1, eos_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    assert hf.effects(model, "café", tokenizer=words, answer="é").answer == "é"
    with pytest.raises(ArgumentError, match="'Ã©' is 4 tokens"):
        hf.effects(model, "café", tokenizer=words, answer="Ã©")
