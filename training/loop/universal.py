"""Runs DeepSpeed's conversion of a checkpoint for another number of ranks, which reads nothing but numbers.

python -P -m training.loop.universal --input_folder … --output_folder …
"""

import os

import torch
from deepspeed.checkpoint.ds_to_universal import main, parse_arguments

from training.loop.numbers_only import FORCE, OPPOSITE, plain_classes

# For the life of this process, and of those that it spawns, which import this file too.
os.environ.pop(OPPOSITE, None)
os.environ[FORCE] = "1"
torch.serialization.add_safe_globals(plain_classes())

if __name__ == "__main__":
    main(parse_arguments())
