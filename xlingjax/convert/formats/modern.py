"""Encoders with rotary positions: ModernBERT (also mmBERT and Ettin), EuroBERT, GTE."""

import numpy as np

from xlingjax.convert.formats.family import Family, Values
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Arrays, Tensors
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

_ROPE, _GLOBAL, _LOCAL = "rope_parameters", "full_attention", "sliding_attention"


class Rotary(Family):
    default_theta = 10_000.0

    def unfold(self, theirs: Arrays, config: ModelConfig, pad_id: int) -> None:
        for name in list(theirs):
            *above, module, part = name.split(".")
            for whole, modules in self.fused.items():
                if module == modules[0]:
                    names = [".".join((*above, other, part)) for other in modules]
                    column = np.concatenate([theirs.pop(other) for other in names])
                    theirs[".".join((*above, whole, part))] = column

    def turns(self, fields: Fields, size: int) -> dict[str, float]:
        """Raises UserError for positions that are scaled otherwise than here."""
        if isinstance(table := fields.values.get(_ROPE), dict):
            own = Fields(fields.path, table)
            scaled = own.one_of("rope_type", {"default": False, "linear": True}, "default")
            scale = own.rate("factor", 1.0) if scaled else 1.0
            theta = own.rate("rope_theta", self.default_theta)
            return {"rotary_theta": theta, "rotary_scale": scale}
        scaling = Fields(fields.path, fields.values.get("rope_scaling") or {"type": "default"})
        scaled = scaling.one_of("type", {"default": False, "ntk": True}, None)
        scaling.only("mixed_b", None)
        factor = scaling.rate("factor", 1.0) if scaled else 1.0
        # "ntk" of GTE's code: the longest wave is `factor` times as long, the others by less.
        theta = fields.rate("rope_theta", self.default_theta) * factor
        return {"rotary_theta": theta, "rotary_scale": factor ** (2 / size)}


def rope(theta: float, scale: float = 1.0) -> Values:
    """Their table of a layer's positions."""
    if scale == 1.0:
        return {"rope_type": "default", "rope_theta": theta}
    return {"rope_type": "linear", "factor": scale, "rope_theta": theta}


class ModernBert(Rotary):
    def tell(self, fields: Fields, ours: Values) -> None:
        pooling = fields.one_of("classifier_pooling", {"cls": "xlm", "mean": "mean"}, "cls")
        if ours["classifier"] == self.classifier:
            ours["classifier"] = pooling
        every = self._global_every(fields, ours["layers"])
        theta = self._theta_of(fields, _GLOBAL, "global_rope_theta", 160_000.0)
        # In older files null is that of the others.
        local_theta = self._theta_of(fields, _LOCAL, "local_rope_theta", 10_000.0)
        ours |= {
            "rotary_theta": theta,
            "local_theta": local_theta or theta,
            "window": fields.count("local_attention", 128) if every > 1 else 0,
            "global_every": every,
            "classifier_dropout": fields.rate("classifier_dropout", 0.0),
        }

    def _theta_of(self, fields: Fields, kind: str, older: str, default: float) -> float:
        tables = fields.values.get(_ROPE)
        own = tables.get(kind) if isinstance(tables, dict) else None
        if own is None:
            own = {"rope_theta": fields.values.get(older, default) or 0.0}
        own = Fields(fields.path, {"rope_theta": default, **own})
        own.only("rope_type", "default")
        return own.rate("rope_theta", default)

    def _global_every(self, fields: Fields, layers: int) -> int:
        """Raises UserError for global layers at other places."""
        every = fields.count("global_attn_every_n_layers", 3)
        named = fields.values.get("layer_types")
        if isinstance(named, list):
            others = [n for n, kind in enumerate(named) if n and kind == _GLOBAL]
            every = others[0] if others else layers
        if named is not None and named != _layer_types(layers, every):
            raise UserError(f"{fields.path}: layer_types={named!r}: only each n-th may be global")
        return every

    def modules_without_head(self) -> dict[str, str]:
        return {ours: name for ours, name in self.modules.items() if not ours.startswith("head")}

    def more_fields(self, config: ModelConfig) -> Values:
        every = config.global_every if config.window else 1
        local_theta = config.local_theta or config.rotary_theta
        return {
            "local_attention": config.window or 128,
            "layer_types": _layer_types(config.layers, every),
            _ROPE: {_GLOBAL: rope(config.rotary_theta), _LOCAL: rope(local_theta)},
            # The names that versions of transformers before 5 know.
            "global_attn_every_n_layers": every,
            "global_rope_theta": config.rotary_theta,
            "local_rope_theta": local_theta,
            "classifier_pooling": "mean" if config.classifier == "mean" else "cls",
            "classifier_dropout": config.classifier_dropout or 0.0,
        }


def _layer_types(layers: int, every: int) -> list[str]:
    return [_LOCAL if n % every else _GLOBAL for n in range(layers)]


class EuroBert(Rotary):
    def tell(self, fields: Fields, ours: Values) -> None:
        if ours["classifier"] == "late":
            poolings = {"late": "late", "bos": "gelu"}
            ours["classifier"] = fields.one_of("classifier_pooling", poolings, "late")
        size = ours["dim"] // ours["heads"]
        fields.only("head_dim", size)
        # A class without a head has no table of its own for one.
        if fields.values.get("architectures") != ["EuroBertForMaskedLM"]:
            ours["tied"] = True
        ours["kv_heads"] = fields.count("num_key_value_heads", ours["heads"])
        ours["dropout"] = 0.0
        ours |= self.turns(fields, size)

    def prepared(self, config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
        tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {}
        return config, self.within(tensors, tied)

    def more_fields(self, config: ModelConfig) -> Values:
        return {
            "num_key_value_heads": config.kv_heads or config.heads,
            "head_dim": config.head_dim,
            "classifier_pooling": "bos" if config.classifier == "gelu" else "late",
            _ROPE: rope(config.rotary_theta, config.rotary_scale),
            "rope_theta": config.rotary_theta,
        }


class Gte(Rotary):
    def tell(self, fields: Fields, ours: Values) -> None:
        ours |= self.turns(fields, ours["dim"] // ours["heads"])

    def more_fields(self, config: ModelConfig) -> Values:
        return {_ROPE: rope(config.rotary_theta, config.rotary_scale)}


MODERNBERT = ModernBert("modernbert")
EUROBERT = EuroBert("eurobert")
GTE = Gte("gte")
