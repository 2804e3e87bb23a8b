"""Exact names of backbones: ``arch.tag``, where the tag says which weights."""

from __future__ import annotations

import logging
from difflib import get_close_matches

from fiveshot.backbones.embedded import EMBEDDED
from fiveshot.errors import InputError
from fiveshot.extras import import_extra

PAPER_BACKBONE = "vit_base_patch16_224.augreg_in21k_ft_in1k"
"""Exact name of the backbone of the paper's experiments; its weights are fetched from the hub.

>>> from fiveshot.backbones import PAPER_BACKBONE, describe_backbone
>>> describe_backbone(PAPER_BACKBONE).width
768
"""

_log = logging.getLogger(__name__)


def resolve_name(name: str) -> str:
    """Return the exact name; a bare architecture gets its default tag, and the choice is logged.

    >>> resolve_name("vit_base_patch16_224.augreg_in21k_ft_in1k")
    'vit_base_patch16_224.augreg_in21k_ft_in1k'
    """
    if name == EMBEDDED:
        return name
    if name == EMBEDDED.partition(".")[0]:
        return _stated(name, EMBEDDED)
    registry = import_extra("timm.models")
    deprecated = registry.get_deprecated_models()
    if deprecated.get(name):
        return _stated(name, resolve_name(deprecated[name]))
    architecture, _, tag = name.partition(".")
    if not registry.is_model(architecture) or architecture in deprecated:
        raise _unknown(name, [EMBEDDED, *registry.list_models()])
    tags = [known.partition(".")[2] for known in registry.get_arch_pretrained_cfgs(architecture)]
    if tag:
        if tag not in tags:
            raise _unknown(name, [f"{architecture}.{known}" for known in tags if known])
        return name
    default = registry.get_pretrained_cfg(architecture)
    if default is None or not default.tag:
        return name
    return _stated(name, f"{architecture}.{default.tag}")


def _stated(given: str, exact: str) -> str:
    _log.warning("backbone %s means %s; write the exact name to keep it so", given, exact)
    return exact


def _unknown(name: str, known: list[str]) -> InputError:
    near = get_close_matches(name.lower(), known, n=4, cutoff=0.6)
    hint = f"nearest: {', '.join(near)}" if near else f"the embedded one is {EMBEDDED}"
    return InputError(f"no backbone {name!r}; {hint}; any timm name is allowed")
