"""A small hand-written corpus in four languages and three scripts, and a vocabulary trained on
it."""

from pathlib import Path

import pytest

EN = """The dog sleeps in the house.
The cat drinks milk every morning.
My brother reads a long book.

We walked along the river yesterday.
The children play in the garden.
It rains, but the sun is still shining.
She bought three apples and two pears.
The train leaves at nine o'clock.
""".splitlines()
DE = """Der Hund schläft im Haus.
Die Katze trinkt jeden Morgen Milch.
Mein Bruder liest ein langes Buch.

Wir gingen gestern am Fluss entlang.
Die Kinder spielen im Garten.
Es regnet, aber die Sonne scheint noch.
Sie kaufte drei Äpfel und zwei Birnen.
Der Zug fährt um neun Uhr ab.
""".splitlines()
RU = """Собака спит в доме.
Кошка пьёт молоко каждое утро.
Мой брат читает длинную книгу.

Вчера мы гуляли вдоль реки.
Дети играют в саду.
""".splitlines()
ZH = """狗在房子里睡觉。
猫每天早上喝牛奶。
我哥哥在读一本很长的书。
""".splitlines()


def write_lines(path: Path, lines) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """mono/{de,en,ru,zh}/small.txt (several times the lines, numbered) and
    parallel/{de-en,en-ru,en-zh}.*"""
    root = tmp_path_factory.mktemp("corpus")
    for code, lines in {"de": DE, "en": EN, "ru": RU, "zh": ZH}.items():
        many = [f"{line} {i}" if line else "" for i in range(12) for line in lines]
        write_lines(root / "mono" / code / "small.txt", many)
    for code, lines in {"de": DE, "ru": RU, "zh": ZH}.items():
        first, second = sorted((code, "en"))
        pairs = [(e, x) for e, x in zip(EN, lines, strict=False) if e and x]
        for side in (first, second):
            many = [f"{e if side == 'en' else x} {i}" for i in range(6) for e, x in pairs]
            write_lines(root / "parallel" / f"{first}-{second}.{side}", many)
    return root


@pytest.fixture(scope="session")
def vocabulary_folder(corpus) -> Path:
    from xlingjax.data.vocabulary.training import train_vocabulary

    out = corpus / "vocabulary"
    train_vocabulary(
        out, mono=str(corpus / "mono/*/*.txt"), size=220, threads=1, character_coverage=1.0
    )
    return out


@pytest.fixture(scope="session")
def vocabulary(vocabulary_folder):
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary

    return Vocabulary.load(vocabulary_folder)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A token cache of the test's own."""
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
