"""The patched llama.cpp with Flash-MoE."""
