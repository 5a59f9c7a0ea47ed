"""What an expert costs: manifests, GGUF files and named models, all read into a ModelGeometry."""

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.manifest import read_manifest
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.geometry.named import named_model, named_models

__all__ = [
    "LayerGeometry",
    "ModelGeometry",
    "load_model",
    "named_model",
    "named_models",
    "read_gguf",
    "read_manifest",
]
