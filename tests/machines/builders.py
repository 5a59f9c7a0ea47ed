"""Machines for tests: a document with every key, and what it says."""

from __future__ import annotations

FULL = """\
name = "full"
title = "A machine with every section"
unified = false
os = "linux"
gpu_maker = "nvidia"
gpu_compute = "8.9"
cpu_features = ["avx2", "avx512"]
cpu_cores = 16

[memory]
ram_gib = { value = 64, source = "spec", condition = "DDR5" }
bandwidth_gb_s = { value = 60, lo = 50, hi = 65.5, source = "stream", condition = "8 threads" }
copy_gb_s = { value = 10, source = "dd", condition = "4 threads" }
reserve_gib = { value = 4, estimated = true, source = "free", condition = "desktop" }

[storage]
read_gb_s = { value = 4, source = "fio", condition = "4 MiB" }
request_us = { value = 100, source = "fio", condition = "4 MiB" }
lanes = { value = 4, estimated = true, source = "flag", condition = "engine" }
hot_share = { value = 0.5, source = "fio", condition = "hot" }

[[storage.measured]]
size_kib = 4096
lanes = 4
gb_s = 3.5
source = "fio"

[link]
pinned_gb_s = { value = 24, source = "nvbandwidth", condition = "Gen4" }
pageable_gb_s = { value = 12, source = "nvbandwidth", condition = "Gen4" }
request_us = { value = 0, source = "nvbandwidth", condition = "Gen4" }

[gpu]
memory_gib = { value = 23, source = "spec", condition = "no display" }
weights_gb_s = { value = 800, source = "bench", condition = "Q4_0" }
layer_us = { value = 40, source = "bench", condition = "Q4_0" }
knee_tokens = { value = 50, source = "bench", condition = "Q4_0" }

[cpu]
layer_us = { value = 80, source = "bench", condition = "Q4_0" }
knee_tokens = { value = 1, source = "bench", condition = "Q4_0" }

[host]
call_us = { value = 65, source = "log", condition = "8 experts" }
install_us = { value = 2, source = "log", condition = "8 experts" }
resume_us = { value = 9, source = "log", condition = "8 experts" }
first_touch_gb_s = { value = 3, source = "log", condition = "8 experts" }

[anchors]
runs = ["a", "b"]
model = "tiny"
date = "2026-01-01"
command = "sim machine fit a b"
"""
