"""vLLM's CPU build with its network compiled by torch.compile, against without: when does compiling pay?

A network of the shape of SmolLM2-135M, random weights. Each engine is a process of its own, which says how long it took
to start (compiling included; what torch keeps of earlier compilations is thrown away first) and how fast it samples.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import torch
from side_by_side import print_header, print_table, show
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline.engines.sampling import Sampling, request_seed
from pipeline.engines.vllm_engine import VllmEngine
from pipeline.models.model_folder import quiet

SHAPE = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
CONTEXT, COMPLETION, REQUESTS, ROUNDS = 48, 16, 64, 3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        with quiet():
            LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(f"{folder}/model")
        print_header(f"vLLM compiled against eager: {REQUESTS} requests of {CONTEXT} + {COMPLETION} tokens, 135 M")
        rows = [("engine", "start, s", "requests/s, median", "rounds")]
        for kind in ("eager", "compiled"):
            show(f"{kind}")
            environment = os.environ | {"VLLM_CACHE_ROOT": f"{folder}/{kind}", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/i"}
            command = [sys.executable, __file__, kind, f"{folder}/model"]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
            if ended.returncode:
                raise SystemExit(f"{kind}: it ended with {ended.returncode}")
            found = json.loads(ended.stdout.splitlines()[-1])
            speeds = sorted(REQUESTS / seconds for seconds in found["rounds"])
            middle, spread = speeds[len(speeds) // 2], f"{speeds[0]:.2f} to {speeds[-1]:.2f}"
            rows.append((kind, f"{found['start']:.1f}", f"{middle:.2f}", spread))
        show("")
        print_table(rows)


def one(kind: str, folder: str) -> None:
    """This process's engine: how long it takes to start, and rounds of sampling after one that is not counted."""
    if kind == "compiled":
        own = VllmEngine._cpu_settings
        VllmEngine._cpu_settings = lambda self: own(self) | {"enforce_eager": False}  # type: ignore[method-assign]
    from pipeline.engines.generator import open_generator

    before = time.perf_counter()
    engine = open_generator(folder, Sampling(), "vllm", window_length=CONTEXT + COMPLETION)
    contexts = list(np.random.default_rng(0).integers(0, SHAPE["vocab_size"], (REQUESTS, CONTEXT), np.int32))
    engine.sample(contexts[:2], [COMPLETION] * 2, [1, 2])
    start, rounds = time.perf_counter() - before, []
    for number in range(ROUNDS + 1):
        seeds = [request_seed(number, str(place), CONTEXT) for place in range(REQUESTS)]
        before = time.perf_counter()
        engine.sample(
            [(context + number) % SHAPE["vocab_size"] for context in contexts], [COMPLETION] * REQUESTS, seeds
        )
        rounds.append(time.perf_counter() - before)
    engine.close()
    print(json.dumps({"start": start, "rounds": rounds[1:]}), flush=True)


if __name__ == "__main__":
    one(*sys.argv[1:]) if len(sys.argv) > 1 else main()
