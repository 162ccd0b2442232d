"""The metrics of a run on Weights & Biases (wandb), beside the run's own files."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

NOT_IN_NAMES = "/\\#?%:"
"""What a project of wandb cannot be called with."""


class WandbRun:
    """One run of a project. A run that goes on is the same there: `wandb_id` in its folder says
    which. Mode, key and server are those of wandb's own environment: with WANDB_MODE=offline it
    keeps everything in the run's folder, for `wandb sync`."""

    def __init__(self, project: str, workdir: Path):
        """Nothing is sent yet. Raises UserError: no such package, no key, an impossible name."""
        self._project = project
        self._workdir = workdir
        self._run: Any = None
        wrong = sorted({*project} & {*NOT_IN_NAMES})
        if wrong:
            raise UserError(f"--wandb {project}: the name of a project has no {' '.join(wrong)}")
        try:
            # Here: a run without the option must not wait seconds for it.
            import wandb
        except ImportError:
            raise UserError(f"--wandb {project} needs pip install 'xlingjax[wandb]'") from None
        self._wandb = wandb
        if wandb.setup().settings.mode == "online":
            try:
                wandb.login()
            except wandb.Error as error:
                raise self._explained(error) from None

    def begin(self) -> str:
        """Opens the run; a line that says where it is. Raises UserError."""
        try:
            self._run = self._wandb.init(
                project=self._project,
                dir=self._workdir,
                name=self._workdir.name,
                id=self._id(),
                resume="allow",
                config=_record(self._workdir),
                # The terminal shows our lines, which log.txt has too.
                settings=self._wandb.Settings(console="off", silent=True),
            )
        except self._wandb.Error as error:
            raise self._explained(error) from None
        # Offline there is no page, and wandb would complain of the question.
        place = self._run.dir
        if not self._run.offline:
            place = self._run.url
        return f"metrics on wandb too: {place}"

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values}, step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _id(self) -> str:
        path = self._workdir / "wandb_id"
        if not path.is_file():
            path.write_text(uuid.uuid4().hex[:12] + "\n", encoding="utf-8")
        return path.read_text(encoding="utf-8").strip()

    def _explained(self, error: Exception) -> UserError:
        first = str(error).strip().splitlines()[0]
        return UserError(
            f"--wandb {self._project}: {first} Run `wandb login`, or set WANDB_MODE=offline and"
            " send it later by `wandb sync`"
        )


def _record(workdir: Path) -> dict[str, Any]:
    """run.json: what wandb shows as the run's configuration."""
    path = workdir / "run.json"
    if not path.is_file():
        return {}
    return parsed_json(path.read_text(encoding="utf-8"))
