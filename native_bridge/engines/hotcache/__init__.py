"""A fork of llama.cpp that keeps the experts which a profile names on the GPU."""
