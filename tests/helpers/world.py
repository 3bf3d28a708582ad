"""A world small enough to be written down: 5 tokens, contexts of 2 of them, completions of 3."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from evaluation import perplexity_bounds, score
from pipeline import make_windows, mine_negatives
from pipeline.models.model_folder import quiet
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import character_tokenizer
from training.energy.folder import open_energy_model
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

WINDOW, CONTEXT, SAMPLES = 5, 2, 600
TEXTS = list(itertools.product(range(5), repeat=3))


class World:
    """A language model, an energy model, windows, many samples of each and their energies."""

    def __init__(self, folder: Path):
        self.folder = folder
        encoder = character_tokenizer("abcd")
        encoder.save(str(folder / "tokenizer"))
        text = "".join(random.Random(0).choices("abcd", k=150))
        (folder / "text.txt").write_text(text)
        make_windows.main(
            f"--input {folder}/text.txt --corpus letters --split test --tokenizer {folder}/tokenizer --window {WINDOW} "
            f"--stride {WINDOW} --output {folder}/windows".split()
        )
        torch.manual_seed(0)
        sizes = {"vocab_size": 5, "n_embd": 32, "n_layer": 1, "n_head": 1, "n_positions": 8, "initializer_range": 0.3}
        with quiet():
            for number in range(2):
                config = GPT2Config(**sizes, bos_token_id=4, eos_token_id=4)
                GPT2LMHeadModel(config).save_pretrained(folder / f"lm{number}")
                encoder.save(str(folder / f"lm{number}"))
            energy = EnergyModel(PRESETS["bit-nano"].build(encoder.description, WINDOW + 1)).eval()
            with torch.no_grad():
                for parameter in energy.parameters():
                    parameter += 0.05 * torch.randn_like(parameter)
                energy.network.energy.weight *= 15
            energy.save_pretrained(folder / "energy")
            encoder.save(str(folder / "energy"))
            constant = EnergyModel(PRESETS["bit-nano"].build(encoder.description, WINDOW + 1))
            with torch.no_grad():
                constant.network.energy.weight.zero_()
                constant.network.energy.bias.fill_(123.0)
            constant.save_pretrained(folder / "constant")
            encoder.save(str(folder / "constant"))
        self.samples = self.mine("samples", f"--context_lengths {CONTEXT} --negatives {SAMPLES} --samples_per_row 250")
        self.energies = self.score("energy", self.samples)

    def mine(self, name: str, flags: str) -> str:
        output = str(self.folder / name)
        given = f"--windows {self.folder}/windows --generator {self.folder}/lm0 --engine torch --output {output}"
        assert mine_negatives.main([*given.split(), *flags.split()]) == 0
        return output

    def score(self, energy: str, samples: str) -> str:
        output = f"{samples}-{energy}"
        score.main(["--energy", str(self.folder / energy), "--store", samples, "--output", output])
        return output

    def bounds(self, flags: str = "", samples: str = "", energies: str = "") -> dict:
        output = str(self.folder / "results")
        given = ["--negatives", samples or self.samples, "--energies", energies or self.energies, "--output", output]
        assert perplexity_bounds.main([*given, *flags.split()]) == 0
        return json.loads(Path(output, "bounds.json").read_text())


@torch.no_grad()
def truth(world: World) -> dict[str, np.ndarray]:
    """For every window, by enumeration: log P_phi of each of the 125 completions, and their energies."""
    lm = AutoModelForCausalLM.from_pretrained(world.folder / "lm0").eval()
    energy = open_energy_model(str(world.folder / "energy")).load()
    found = {}
    for row in Store(str(world.folder / "windows")).rows(["window_id", "tokens"]):
        windows = torch.tensor([[*row["tokens"][:CONTEXT].tolist(), *text] for text in TEXTS])
        logits = lm(torch.cat([torch.full((125, 1), 4), windows[:, :-1]], 1)).logits.double().log_softmax(-1)
        steps = logits.gather(2, windows[:, :, None])[:, CONTEXT:, 0]
        place = TEXTS.index(tuple(row["tokens"][CONTEXT:].tolist()))
        found[row["window_id"]] = (steps.sum(1).numpy(), energy(windows).double().numpy(), place)
    return found
