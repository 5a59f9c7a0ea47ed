"""What a timeline is made of: the parts of a call's time, the resources, and the kinds of spans.

Numbers that are passed to kernels are numpy's, since numba compiles a copy for each Python constant.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

PARTS = ("dense", "host", "experts", "cold_lane", "merge", "read", "upload", "late", "ahead", "output")
N_PARTS = len(PARTS)
DENSE, HOST, EXPERTS, COLD_LANE, MERGE, READ, UPLOAD, LATE, AHEAD, OUTPUT = range(N_PARTS)

PART_WORDS = {
    "dense": "dense part of the layers",
    "host": "host: finding slots, installing",
    "experts": "computing experts",
    "cold_lane": "waiting for the CPU's experts",
    "merge": "joining the two lanes",
    "read": "waiting for reads",
    "upload": "waiting for uploads or copies",
    "late": "waiting for late prefetches",
    "ahead": "reading ahead",
    "output": "output layer",
}

# The parts in which the computing unit waits for something else.
STALLS = ("host", "cold_lane", "read", "upload", "late", "ahead")

# What an execution model uploads, and when; see models/base.py.
Uploads = Literal["nothing", "in-turn", "as-read", "beside-reads", "while-computing", "everything"]
UPLOADS: tuple[Uploads, ...] = get_args(Uploads)
NOTHING, IN_TURN, AS_READ, BESIDE_READS, WHILE_COMPUTING, EVERYTHING = range(len(UPLOADS))

WHOLE = 256  # parts of the misses of which a share is uploaded, as Strata counts them

# `compute` is the GPU, or the CPU if there is no GPU; the cold lane is the CPU beside a GPU.
RESOURCES = ("compute", "cold_lane", "storage", "link", "host")
N_RESOURCES = len(RESOURCES)
ON_COMPUTE, ON_COLD_LANE, ON_STORAGE, ON_LINK, ON_HOST = (np.int64(n) for n in range(N_RESOURCES))

KINDS = (
    "dense",
    "resolve slots",
    "experts",
    "cold experts",
    "merge",
    "read",
    "read from page cache",
    "read ahead",
    "upload",
    "upload ahead",
    "install",
    "resume",
    "output",
)
(
    IS_DENSE,
    IS_RESOLVE,
    IS_EXPERTS,
    IS_COLD_EXPERTS,
    IS_MERGE,
    IS_READ,
    IS_WARM_READ,
    IS_READ_AHEAD,
    IS_UPLOAD,
    IS_UPLOAD_AHEAD,
    IS_INSTALL,
    IS_RESUME,
    IS_OUTPUT,
) = (np.int64(n) for n in range(len(KINDS)))
