"""What an expert costs: manifests, GGUF files and named models, all read into a ModelGeometry."""
