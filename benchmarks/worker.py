"""One contestant in a process of its own, so that memory and threads are its own: it answers
commands over a pipe."""

import contextlib
import multiprocessing
import os
import traceback

from benchmarks.shapes import GenerationShape, Shape

CONTESTANTS = ("xlingjax", "pytorch-eager", "pytorch-compile")
ON_GPU = (
    "xlingjax",
    "xlingjax-threefry",
    "xlingjax-flash",
    "pytorch-eager",
    "pytorch-compile",
)
"""Of ours: dropout from "rbg"; from the default generator; attention by `flash`."""


def make(name: str, shape: Shape | GenerationShape, platform: str):
    if isinstance(shape, GenerationShape):
        from benchmarks import generation

        return generation.CONTESTANTS[name](shape, platform)
    if name.startswith("xlingjax"):
        from benchmarks.ours import Ours

        return Ours(shape, platform, name.partition("-")[2])
    from benchmarks.theirs import Theirs

    return Theirs(shape, platform, compiled=name.endswith("compile"))


def serve(pipe, name: str, shape: Shape | GenerationShape, platform: str) -> None:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    # Of a GPU's memory, at most: two contestants share it, and XLA's pool doubles as it grows.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.45")
    if platform == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        contestant = make(name, shape, platform)
        pipe.send({"compile_seconds": contestant.compile_seconds})
        while steps := pipe.recv():
            pipe.send({"seconds": contestant.run(steps), "peak_bytes": contestant.peak_bytes()})
    except Exception as error:
        # Reported to the parent, which goes on with the others.
        lines = traceback.format_exception_only(error)
        pipe.send({"error": lines[-1].strip().splitlines()[0]})


class Worker:
    """The parent's handle. `failed` holds the reason when the contestant could not run."""

    def __init__(self, name: str, shape: Shape | GenerationShape, platform: str):
        context = multiprocessing.get_context("spawn")
        self.name, self.failed = name, ""
        self._pipe, child = context.Pipe()
        self._process = context.Process(
            target=serve, args=(child, name, shape, platform), daemon=True
        )
        self._process.start()
        child.close()
        self.compile_seconds = 0.0
        self._ready = False

    def wait(self) -> None:
        """Until its step is compiled."""
        if not self._ready:
            self.compile_seconds = self._ask().get("compile_seconds", 0.0)
        self._ready = True

    def _ask(self) -> dict:
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            answer = {"error": "the process ended (out of memory?)"}
        self.failed = answer.get("error", "")
        return answer

    def run(self, steps: int) -> dict:
        self.wait()
        if self.failed:
            return {"error": self.failed}
        with contextlib.suppress(BrokenPipeError):  # the answer says so
            self._pipe.send(steps)
        return self._ask()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(0)
        self._process.join(10)
        self._process.kill()
