"""Moses' steps and tokenised BLEU, beside NLTK's BLEU and what the scripts are documented to do."""

import io

import pytest
from nltk.translate.bleu_score import corpus_bleu

from xlingjax.cli import main
from xlingjax.evaluation.metrics.moses import STEPS, moses_bleu, moses_steps

MADE = [
    "The U.S. state-of-the-art isn't 'new', he said (today).",
    "A cat sat on the mat & the dog, too.",
    "It is well-known that prices rose by 3.5%.",
]
WANTED = [
    "The U.S. state-of-the-art is not 'new', he said (today).",
    "The cat sat on the mat & the dog did, too.",
    "It is a well-known fact that prices rose by 3.5%.",
]


@pytest.mark.parametrize(
    "steps, language, line, expected",
    [
        # tokenizer.perl: escaped, abbreviations kept, clitics apart.
        (["tokenise"], "en", 'Mr. Li isn\'t "he".', "Mr. Li isn &apos;t &quot; he &quot; ."),
        # Its -a.
        (["tokenise", "hyphens"], "en", "well-known", "well @-@ known"),
        (["tokenise"], "en", "well-known", "well-known"),
        # Perl's s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g takes b with a-b.
        (["compounds"], "de", "Rad-Tour a-b-c", "Rad ##AT##-##AT## Tour a ##AT##-##AT## b-c"),
        (["romanian"], "ro", "Şi ţara", "Și țara"),
        (["romanian", "diacritics"], "ro", "Şi ţara încă", "Si tara inca"),
        (["diacritics"], "ro", "Şi", "Şi"),  # with a cedilla it is no Romanian letter
        (["punctuation"], "en", "„So“ – it’s", '"So" - it\'s'),
        (["lowercase", "tokenise"], "de", "Ärger, Öl", "ärger , öl"),
        ([], "en", " as is ", " as is "),
    ],
)
def test_steps_are_those_of_the_scripts(steps, language, line, expected):
    assert moses_steps(steps, language)(line) == expected


@pytest.mark.parametrize(
    "steps", [["tokenise"], ["tokenise", "hyphens", "compounds"], ["tokenise", "lowercase"]]
)
def test_tokenised_bleu_is_nltks_of_the_tokens(steps):
    taken = moses_steps(steps, "en")
    hypotheses = [taken(line).split() for line in MADE]
    references = [[taken(line).split()] for line in WANTED]
    value, signature = moses_bleu(MADE, WANTED, steps, "en")
    assert value == pytest.approx(100 * corpus_bleu(references, hypotheses), abs=1e-6)
    assert 20 < value < 90
    chosen = "+".join(step for step in STEPS if step in steps)
    assert signature.startswith(f"moses:{chosen}|language:en|") and "tok:none" in signature


def test_two_files_of_lines_are_scored(tmp_path, capsys):
    made, wanted = tmp_path / "made.en", tmp_path / "wanted.en"
    made.write_text("\n".join(MADE) + "\n")
    wanted.write_text("\n".join(WANTED) + "\n")
    command = ["score", "--predictions", str(made), "--gold", str(wanted)]
    more = ["--metric", "tokenised_bleu", "--language", "en", "--moses", "tokenise", "lowercase"]
    assert main.main([*command, *more]) == 0
    value, _ = moses_bleu(MADE, WANTED, ["tokenise", "lowercase"], "en")
    assert f"tokenised_bleu {value:.2f} of 3 lines (moses:tokenise+lowercase|" in (
        capsys.readouterr().out
    )
    assert main.main([*command, "--metric", "bleu"]) == 2
    assert "--metric needs --language" in capsys.readouterr().err


def test_lines_are_taken_through_the_steps(monkeypatch, capsys):
    lines = io.BytesIO(b"Well-known, it is.\n\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
    assert main.main(["data", "moses", "lowercase", "tokenise", "hyphens", "--language", "en"]) == 0
    assert capsys.readouterr().out == "well @-@ known , it is .\n\n"
