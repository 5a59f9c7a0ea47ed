"""A fork of llama.cpp that keeps the experts named in a profile on the GPU."""
