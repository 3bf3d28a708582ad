# %% [markdown]
# # From a list of strings to a better language model
#
# A language model that writes one character after the other, an energy model that reads whole lines, and the two of
# them together, on lines such as `350931=013359`: digits, and the same digits in order. Put texts of your own in their
# place; everything below stays as it is. On two cores it takes a few minutes, and what was done is not done again.

# %%
from random import Random
from typing import Any

from evaluation import JointModel, bounds_of, energies_of
from pipeline import negatives_of, windows_from
from training import train_energy_model, train_language_model

FOLDER = "first_energy"  # where everything goes
TEXTS, STEPS, SAMPLES = 4000, 600, 50


def line(random: Random) -> str:
    digits = random.choices("0123456789", k=6)
    return f"{''.join(digits)}={''.join(sorted(digits))}\n"


texts = [line(Random(number)) for number in range(TEXTS)]

# %% [markdown]
# Windows are what models read: as many tokens as a line has here. The language model learns from one half of the texts,
# and continues the other half for the energy model: it must not learn to see what was remembered.

# %%
shape: dict[str, Any] = {"window": 15, "stride": 15}
language = windows_from(texts[100:], f"{FOLDER}/language", train_tokenizer=257, documents="1/2", **shape)
shape["tokenizer"] = language.path
energies = windows_from(texts[100:], f"{FOLDER}/windows", documents="2/2", **shape)
valid = windows_from(texts[:100], f"{FOLDER}/valid", split="valid", **shape)
valid

# %%
generator = train_language_model(language, valid, f"{FOLDER}/lm", preset="transf-nano", max_steps=STEPS)

# %% [markdown]
# Negatives: what the language model makes of the contexts, here of the first seven characters.

# %%
how = {"context_lengths": "7", "engine": "torch"}
negatives = negatives_of(energies, generator, f"{FOLDER}/negatives", **how)
valid_negatives = negatives_of(valid, generator, f"{FOLDER}/valid_negatives", **how)
negatives

# %%
energy = train_energy_model(negatives, valid_negatives, f"{FOLDER}/energy", preset="bit-nano", max_steps=STEPS)

# %% [markdown]
# Perplexity of the two together, from many samples of each context, is known between two bounds.

# %%
samples = negatives_of(valid, generator, f"{FOLDER}/samples", negatives=SAMPLES, **how)
scored = energies_of(samples, energy, f"{FOLDER}/scored")
bounds = bounds_of(samples, scored, f"{FOLDER}/bounds")
bounds

# %% [markdown]
# And what they write: of many completions of the language model, one that the energy model finds real.

# %%
joint = JointModel(generator.name, energy.name, window_length=15)
completions = {prompt: joint.generate(prompt, samples=SAMPLES, tokens=8) for prompt in ("350931=", "271828=")}
completions
