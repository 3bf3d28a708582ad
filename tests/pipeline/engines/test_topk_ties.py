"""Which tokens vLLM's top-k keeps on GPUs where several tie: its own kernel, run by Triton's interpreter.

A process of its own, as both libraries look at the machine when they are imported. In a copy of the kernel's file one
expression is written so that the interpreter knows it: the number of a row, which is a plain integer there.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from pipeline.engines.vllm_engine import kept_mass

KEPT = """
import importlib.util, json, os, sys
os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
import vllm.platforms
vllm.platforms.vllm_version_matches_substr = lambda part: False  # or Triton is put aside in a build for CPUs
import torch
source = open(importlib.util.find_spec("vllm.v1.sample.ops.topk_topp_triton").origin).read()
assert source.count("row_id.to(tl.int64)") == 1
open(sys.argv[1] + "/kernel.py", "w").write(source.replace("row_id.to(tl.int64)", "tl.cast(row_id, tl.int64)"))
sys.path.insert(0, sys.argv[1])
import kernel
kernel.num_compute_units = lambda *device: 2
torch.manual_seed(0)
logits = torch.randn(12, 400).bfloat16().float()  # in 16 bits, where ties are common
kept = kernel.apply_top_k_top_p_triton(logits.clone(), torch.full((12,), 20, dtype=torch.int32), None)
print(json.dumps({"logits": logits.tolist(), "kept": torch.isfinite(kept).tolist()}))
"""


@pytest.mark.slow
def test_the_kernel_keeps_exactly_k_and_their_mass_is_what_log_q_uses(tmp_path):
    ended = subprocess.run([sys.executable, "-c", KEPT, str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    logits, kept = np.array(found["logits"]), np.array(found["kept"])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert kept.sum(-1).tolist() == [20] * 12
    best = -np.sort(-log_p, axis=-1)
    ties = (best >= best[:, 19:20]).sum(-1)
    assert (ties > 20).any()  # or the test would show nothing
    mass = np.where(kept, np.exp(log_p), 0).sum(-1)
    assert kept_mass(best[:, :36], 20, 400, exactly=True) == pytest.approx(mass)
    assert (kept_mass(best[:, :36], 20, 400)[ties > 20] > mass[ties > 20]).all()
