"""Recording what a model's routers choose, without the patched runtime: llama.cpp's and transformers' own models."""
