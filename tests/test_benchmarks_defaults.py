"""The study of own_text's settings: what is searched is never trained on."""

from benchmarks import defaults


def test_no_side_of_a_pair_that_is_searched_is_trained_on(tmp_path, monkeypatch):
    """A sentence in two pairs; one that a language lacks; two sentences of one translation."""
    lines = {
        "de": ["eins one", "uno one", "zwei two", "drei three", "vier four"],
        "sw": ["moja one", "mbili two", "mbili three", "tano five"],
    }
    lines = {code: [tuple(pair.split()) for pair in pairs] for code, pairs in lines.items()}
    for code, pairs in lines.items():
        stem = "-".join(sorted((code, "en")))
        (tmp_path / "s").mkdir(exist_ok=True)
        for side, ending in enumerate((code, "en")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / "s" / f"{stem}.{ending}").write_text(text)
    text = defaults.Text(("s",), ("de", "sw"))
    monkeypatch.setattr(defaults, "HELD", 2)
    searched, kept = defaults.split(tmp_path, text)
    english = [[english for _, english in searched[code]] for code in ("de", "sw")]
    assert english[0] == english[1]
    # "two" and "three" are one sentence of Swahili: one of them at most.
    assert len(set(english[0])) == 2 and "one" in english[0]
    for code in lines:
        sides = {line for pair in searched[code] for line in pair}
        assert not sides & {line for pair in kept[code] for line in pair}
        assert not {pair[1] for pair in kept[code]} & set(english[0])
    assert ("vier", "four") in kept["de"] and ("tano", "five") in kept["sw"]
