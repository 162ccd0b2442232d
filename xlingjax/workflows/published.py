"""Figures that papers print, to stand in columns of their own beside what was measured: means over
languages.

(task, model, strategy, mean in 0..100, source). Where a paper prints F1 and EM the first is given;
where its mean is of other languages than the task's the source says so.
"""

_XTREME = "VECO (Luo et al. 2021), Table 2"
_XGLUE = "XGLUE (Liang et al. 2020), Table 4; WPR without es, QG of de, en, fr"
_XLM = "XLM (Conneau & Lample 2019), Table 1"
_UNICODER = "Unicoder (Huang et al. 2019), Table 2"
_ENGLISH = "; English, not translated, is one of the languages"
_ERNIE = "ERNIE-M (Ouyang et al. 2021), Table 1"


def _row(
    suite: str, model: str, strategy: str, source: str, **values: float
) -> list[tuple[str, str, str, float, str]]:
    return [
        (f"{suite}/{task}", model, strategy, value, source)
        for task, value in values.items()
    ]


PAPERS: list[tuple[str, str, str, float, str]] = [
    *_row(
        "xtreme",
        "mBERT",
        "transfer",
        _XTREME,
        xnli=65.4,
        pawsx=81.9,
        udpos=70.3,
        panx=62.2,
        xquad=64.5,
        mlqa=61.4,
        tydiqa=59.7,
        bucc2018=56.7,
        tatoeba=38.7,
    ),
    *_row(
        "xtreme",
        "XLM",
        "transfer",
        _XTREME,
        xnli=69.1,
        pawsx=80.9,
        udpos=70.1,
        panx=61.2,
        xquad=59.8,
        mlqa=48.5,
        tydiqa=43.6,
        bucc2018=56.8,
        tatoeba=32.6,
    ),
    *_row(
        "xtreme",
        "XLM-R large",
        "transfer",
        _XTREME,
        xnli=79.2,
        pawsx=86.4,
        udpos=72.6,
        panx=65.4,
        xquad=76.6,
        mlqa=71.6,
        tydiqa=65.1,
        bucc2018=66.0,
        tatoeba=57.3,
    ),
    *_row(
        "xtreme",
        "VECO, plugged out",
        "transfer",
        _XTREME,
        xnli=79.9,
        pawsx=88.7,
        udpos=75.1,
        panx=65.7,
        xquad=77.3,
        mlqa=71.7,
        tydiqa=67.6,
        bucc2018=85.0,
        tatoeba=75.1,
    ),
    *_row(
        "xtreme",
        "VECO, plugged out",
        "multi_language",
        _XTREME,
        xnli=83.0,
        pawsx=91.1,
        xquad=79.9,
        mlqa=73.1,
        tydiqa=75.0,
        bucc2018=89.3,
        tatoeba=86.9,
    ),
    *_row(
        "xtreme",
        "VECO, plugged in",
        "plug_in",
        _XTREME,
        xnli=84.3,
        pawsx=92.8,
        xquad=83.9,
        mlqa=77.5,
        tydiqa=79.4,
        bucc2018=92.6,
        tatoeba=91.1,
    ),
    *_row(
        "xtreme",
        "VECO, plugged in",
        "plug_in",
        _XTREME + ", from a teacher's labels",
        udpos=79.8,
        panx=71.0,
    ),
    *_row(
        "xglue",
        "M-BERT",
        "transfer",
        _XGLUE,
        ner=78.2,
        pos=74.7,
        nc=81.3,
        mlqa=60.7,
        xnli=66.3,
        pawsx=87.2,
        qadsm=64.6,
        wpr=72.9,
        qam=61.3,
        qg=4.5,
        ntg=8.2,
    ),
    *_row(
        "xglue",
        "XLM-R base",
        "transfer",
        _XGLUE,
        ner=79.0,
        pos=79.9,
        nc=83.3,
        mlqa=65.1,
        xnli=74.2,
        pawsx=89.5,
        qadsm=68.3,
        wpr=73.5,
        qam=67.3,
    ),
    *_row(
        "xglue",
        "Unicoder-LC",
        "transfer",
        _XGLUE,
        ner=79.7,
        pos=79.7,
        nc=83.4,
        mlqa=66.0,
        xnli=75.3,
        pawsx=90.1,
        qadsm=69.3,
        wpr=73.7,
        qam=67.7,
    ),
    *_row("xglue", "xDAE", "transfer", _XGLUE, qg=7.9, ntg=11.0),
    *_row("xglue", "xFNP", "transfer", _XGLUE, qg=6.5, ntg=9.1),
    *_row("xnli", "XLM, MLM + TLM", "transfer", _XLM, xnli=75.1),
    *_row("xnli", "XLM, MLM + TLM", "translate_train", _XLM + _ENGLISH, xnli=76.7),
    *_row("xnli", "XLM, MLM + TLM", "translate_test", _XLM, xnli=74.2),
    *_row("xnli", "Unicoder", "transfer", _UNICODER, xnli=75.4),
    *_row("xnli", "Unicoder", "translate_train", _UNICODER + _ENGLISH, xnli=76.9),
    *_row("xnli", "Unicoder", "translate_test", _UNICODER, xnli=74.9),
    *_row("xnli", "Unicoder", "multi_language", _UNICODER, xnli=78.5),
    *_row("xnli", "ERNIE-M base", "transfer", _ERNIE, xnli=77.3),
    *_row("xnli", "ERNIE-M base", "multi_language", _ERNIE, xnli=80.6),
    *_row("xnli", "ERNIE-M large", "transfer", _ERNIE, xnli=82.0),
    *_row("xnli", "ERNIE-M large", "multi_language", _ERNIE, xnli=84.2),
]
