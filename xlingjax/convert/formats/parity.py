"""Is a converted model the one that transformers computes? (extra `interop`)"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.convert.formats.family import WRAPPERS
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.modern import GTE
from xlingjax.convert.formats.prophetnet import CROSS_LINGUAL
from xlingjax.convert.formats.tensors import Arrays
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.inference.encode import rows_of
from xlingjax.inference.forward import compiled
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.masks import bidirectional
from xlingjax.runtime.machine import first_line

SENTENCES = (
    "The water of the lake is cold this morning, isn't it?",
    "Das Wasser des Sees ist heute Morgen kalt – nicht wahr?",
    "Вода в озере сегодня утром холодная, не правда ли?",
    "Το νερό της λίμνης είναι κρύο σήμερα το πρωί.",
    "ماء البحيرة بارد هذا الصباح.",
    "המים באגם קרים הבוקר.",
    "आज सुबह झील का पानी ठंडा है।",
    "আজ সকালে হ্রদের জল ঠান্ডা।",
    "இன்று காலை ஏரியின் நீர் குளிர்ச்சியாக உள்ளது.",
    "น้ำในทะเลสาบเย็นเช้านี้",
    "今天早上湖里的水很冷。",
    "今朝は湖の水が冷たいですね。",
    "오늘 아침 호수의 물이 차갑습니다.",
    "დღეს დილით ტბის წყალი ცივია.",
    "Այս առավոտ լճի ջուրը սառն է։",
    "ዛሬ ጠዋት የሐይቁ ውሃ ቀዝቃዛ ነው።",
)
"""One in each of many scripts, on which a converted model is compared with its original."""
TOLERANCE = 1e-4  # of the largest number, at least of 1: float32 sums in another order
_KINDS = {
    "words": ("AutoModelForMaskedLM", "logits of the pieces"),
    "states": ("AutoModel", "states of every layer"),
    **dict.fromkeys(
        ("xlm", "xlmr", "mean", "late", "gelu", "relu"),
        ("AutoModelForSequenceClassification", "logits of the classes"),
    ),
    "tagging": ("AutoModelForTokenClassification", "logits of the tags"),
    "spans": ("AutoModelForQuestionAnswering", "logits of the spans"),
    "decoder": ("AutoModelForSeq2SeqLM", "logits of the next piece"),
}
# A batch's logits over 250 002 pieces stay small, and it has padding.
_ROWS = 2
# What transformers makes a tokenizer of.
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "merges.txt",
    "prophetnet.tokenizer",
)


def interop() -> Any:
    """The module transformers, silent. Raises UserError where it, or PyTorch, is not installed."""
    try:
        import torch  # noqa: F401 - what it computes with
        import transformers
        from transformers.utils import logging
    except ImportError:
        raise UserError(
            "comparing with transformers needs it: pip install 'xlingjax[interop]' (in a clone:"
            " make setup-interop), or say --unverified"
        ) from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def compare(
    folder: Path,
    config: ModelConfig,
    params: Any,
    vocabulary: Vocabulary,
    vocabulary_head: bool,
) -> str:
    """What was found of ours beside the model and the tokenizer that transformers opens in
    `folder`: the logits of its classifier, else of its vocabulary head (of a decoder's, which reads
    another sentence), else the states of every layer.

    A language embedding gets them in turn, and language tokens begin what a decoder reads in turn.
    Raises UserError where ids or numbers differ, and where
    transformers is not installed or cannot open the folder.
    """
    transformers = interop()
    kind = "words" if vocabulary_head else "states"
    if config.decoder_layers:
        kind = "decoder"
    elif config.num_labels:
        kind = config.classifier
    described = None
    # Named by code that lies beside it, which transformers' own class reads, too.
    if config.positions == "rotary" and Fields(folder / "config.json").values.get("auto_map"):
        described = transformers.AutoConfig.for_model(**GTE.described(config, vocabulary))
    tokenizer, theirs = opened(folder, transformers, kind, described)
    most = config.max_positions - config.position_offset - bool(config.streams)
    rows = _rows(folder, vocabulary, tokenizer, most, bool(config.decoder_layers))
    # In float32 and with plain attention, as transformers computes.
    model = build_model(config.replace(dtype="float32", attention_backend="xla"))
    run = compiled(_ours, model, None, kind)
    params = jax.device_put(params)
    difference = 0.0
    largest = 0.0
    for start in range(0, len(rows), _ROWS):
        batch = _batch(rows, start, config, vocabulary, kind)
        # An accelerator may take fewer bits of float32.
        with jax.default_matmul_precision("highest"):
            ours = np.asarray(run(params, batch))
        wanted = _theirs(theirs, batch, config, kind)
        if ours.ndim > 2:
            valid_BL = batch["decoder_pack_ids" if kind == "decoder" else "pack_ids"] > 0
            ours, wanted = ours[valid_BL], wanted[valid_BL]
        if kind == "decoder":
            # Languages, and rows without a piece, are put out of reach where texts are searched.
            pieces = config.vocab_size - config.language_tokens
            ours, wanted = ours[..., :pieces], wanted[..., :pieces]
        # NumPy's maximum, which keeps NaN; Python's max would drop it.
        difference = float(np.maximum(difference, np.abs(ours - wanted).max()))
        largest = float(np.maximum(largest, np.abs(wanted).max()))
    _, what = _KINDS[kind]
    found = (
        f"{what}: largest difference {difference:.1e} (of values up to {largest:.1f}),"
        f" {len(rows)} sentences of as many languages, transformers in float32"
    )
    if not difference <= TOLERANCE * max(1.0, largest):
        raise UserError(
            f"{folder}: what xlingjax computes is not what transformers computes: {found}"
        )
    if tokenizer is None:
        found += "; the folder has no tokenizer of transformers to compare ids with"
    return found


def opened(folder: Path, transformers: Any, kind: str, config: Any = None) -> tuple[Any, Any]:
    """(the tokenizer, None where the folder has none of theirs; the model, in float32) that
    transformers makes of the folder. config: instead of its own. Raises UserError where it makes
    none."""
    import torch

    auto, _ = _KINDS[kind]
    here: dict[str, Any] = dict(local_files_only=True, trust_remote_code=False)
    # Of which transformers 5 has neither name nor tokenizer: the model is ProphetNet's.
    cross_lingual = Fields(folder / "config.json").values.get("model_type") == CROSS_LINGUAL
    has_tokenizer = not cross_lingual and any((folder / name).is_file() for name in _TOKENIZERS)
    try:
        tokenizer = None
        if has_tokenizer:
            given = here if config is None else {**here, "config": config}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **given)
        if cross_lingual:
            config = transformers.ProphetNetConfig.from_pretrained(folder, **here)
        if config is not None:
            here["config"] = config
        here |= {"dtype": torch.float32, "key_mapping": {WRAPPERS: ""}}
        model = getattr(transformers, auto).from_pretrained(folder, **here).eval()
    except Exception as error:  # of many kinds
        why = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(
            f"transformers cannot open {folder} to compare with ({why}); mend it, or say"
            " --unverified"
        ) from None
    return tokenizer, model


def _batch(
    rows: list[list[int]], start: int, config: ModelConfig, vocabulary: Vocabulary, kind: str
) -> Arrays:
    """[`_ROWS`, their longest] of the rows from `start` on; of a decoder also `decoder_*`."""
    length = max(map(len, rows))
    number = start // _ROWS
    language = number % max(config.num_languages, 1)
    chosen = rows[start : start + _ROWS]
    batch = rows_of(chosen, language, vocabulary.pad_id, len(chosen), length)
    if config.segments:
        second_L = (np.arange(length) >= length // 2) & (config.segments > 1)
        batch["sides"] = np.broadcast_to(second_L, batch["input_ids"].shape).astype(np.int32)
    if kind == "decoder":
        other = (rows[start + 1 :] + rows)[:_ROWS]
        read = rows_of(other, 0, vocabulary.pad_id, len(other), length)
        read["ids"] = read.pop("input_ids")
        batch |= {f"decoder_{name}": values for name, values in read.items()}
        if config.language_tokens:
            token = vocabulary.size + number % config.language_tokens
            batch["decoder_ids"][:, 0] = token
    return batch


def _theirs(theirs: Any, batch: Arrays, config: ModelConfig, kind: str) -> np.ndarray:
    """What is compared of their model, as `_ours` of ours: [B, L, ...] or [B, C]."""
    import torch

    names = {"input_ids": "input_ids", "attention_mask": "pack_ids"}
    if config.has_languages:
        names["langs"] = "language_ids"
    if config.segments:
        names["token_type_ids"] = "sides"
    if kind == "decoder":
        names["decoder_input_ids"] = "decoder_ids"
    given = {argument: torch.tensor(batch[name]).long() for argument, name in names.items()}
    if config.unseen is not None:
        given["attention_mask"] *= given["input_ids"] != config.unseen
    with torch.no_grad():
        if config.streams:
            computed = _by_steps(theirs, given)
        elif kind == "states":
            states = theirs(**given, output_hidden_states=True).hidden_states
            computed = torch.stack(states, dim=2)
        else:
            output = theirs(**given)
            computed = output[0]
            if "start_logits" in output:
                computed = torch.stack([output.start_logits, output.end_logits], -1)
    return computed.numpy()


def _ours(model, kind: str, params, batch):
    """What is compared of a model of this kind (see `_KINDS`), [B, L, ...] or [B, C]."""
    if kind == "states":
        h_NBLD = model.encode(params, batch, bidirectional, all_layers=True)
        return jnp.moveaxis(h_NBLD, 0, 2)
    h_BLD = model.encode(params, batch, bidirectional)
    if kind == "decoder":
        decoded_BLD = model.decode(params, batch, h_BLD)
        g, table_VD, bias_V = model.decoder_head(params, decoded_BLD)
    elif kind == "words":
        g, table_VD, bias_V = model.vocab_head(params, h_BLD)
    else:
        return model.classify(params, h_BLD, batch)
    return (g @ table_VD.T + bias_V)[..., : model.config.true_rows]


def _rows(
    folder: Path, vocabulary: Vocabulary, tokenizer: Any, most: int, alone: bool
) -> list[list[int]]:
    """Ids of every sentence, also with each added word. alone: without what stands around them,
    where an encoder-decoder's source has its language or nothing. Raises UserError where their
    tokenizer's differ."""
    rows: list[list[int]] = []
    normalize = _normalization(vocabulary, tokenizer)
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    of_added = [f"The word {token.content} is new." for token in added if not token.special]
    for sentence in (*SENTENCES, *of_added):
        ids = [vocabulary.bos_id, *vocabulary.encode(sentence), vocabulary.eos_id]
        found = ids
        if tokenizer is not None:
            found = tokenizer(normalize(sentence), add_special_tokens=not alone)["input_ids"]
            if alone:
                found = [vocabulary.bos_id, *found, vocabulary.eos_id]
        # Which begins with </s>, theirs with <s>.
        if isinstance(vocabulary, FastBpeVocabulary):
            found = [vocabulary.bos_id, *found[1:]]
        if found != ids:
            raise UserError(
                f"{folder}: its tokenizer and the vocabulary read here differ on {sentence!r}:"
                f" {found} and {ids}; give files that belong together"
            )
        rows.append(ids[:most])
    # Of a word that was added the ids are enough.
    return rows[: len(SENTENCES)]


def _normalization(vocabulary: Vocabulary, tokenizer: Any) -> Callable[[str], str]:
    """What their tokenizer is to be given: transformers 5 makes an MBartTokenizer without the
    normalization table of the SentencePiece model, whose part is done here then."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if (
        type(tokenizer).__name__ != "MBartTokenizer"
        or backend is None
        or backend.normalizer is not None
    ):
        return lambda text: text
    return vocabulary.normalized


def _by_steps(theirs: Any, given: dict[str, Any]) -> Any:
    """Logits of stream 0 of their n-stream decoder, a piece at a time. All at once transformers 5
    adds biases of other columns to a query's scores, wherever there is more than one stream or head
    (`get_predict_relative_pos_embeddings`)."""
    import torch

    ids = given.pop("decoder_input_ids")
    past = None
    logits = []
    encoded = theirs.prophetnet.encoder(given["input_ids"], attention_mask=given["attention_mask"])
    for column in range(ids.shape[1]):
        step = dict(
            decoder_input_ids=ids[:, column : column + 1], past_key_values=past, use_cache=True
        )
        found = theirs(encoder_outputs=encoded, attention_mask=given["attention_mask"], **step)
        past = found.past_key_values
        logits.append(found.logits[:, 0])
    return torch.stack(logits, dim=1)
