"""A run's workdir as training leaves it, without the training."""

import dataclasses
import json

import orbax.checkpoint as ocp

from xlingjax.training.checkpoint_params import HashedPath


def write(folder, model, params, step=7, languages=("de", "en", "zh"), vocabulary=None):
    """run.json, and the checkpoint of `step` beside those that are there. vocabulary: its hash."""
    data = {"vocabulary": vocabulary or {"sha256": "abc"}, "languages": list(languages)}
    identity = {"data": {"mlm": data}, "model": dataclasses.asdict(model)}
    record = {"model": identity["model"], "languages": list(languages), "identity": identity}
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(record))
    checkpoint = folder / "checkpoints" / str(step)
    handler = ocp.StandardCheckpointHandler()
    with ocp.Checkpointer(handler, temporary_path_class=HashedPath) as writer:
        writer.save(checkpoint / "params", args=ocp.args.StandardSave(params))
    with ocp.Checkpointer(ocp.JsonCheckpointHandler(), temporary_path_class=HashedPath) as writer:
        writer.save(checkpoint / "run", args=ocp.args.JsonSave({"identity": identity}))
