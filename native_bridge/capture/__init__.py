"""Recording the choices of a model's routers without the patched runtime, in llama.cpp and transformers."""
