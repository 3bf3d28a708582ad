"""Command lines: what is wrong with one is said in one line."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from pipeline.runtime.errors import UserError

# What transformers, TRL, DeepSpeed and vLLM call it, and what it is here: of these the first that a command has.
ELSEWHERE = {
    "learning_rate": ("max_lr",),
    "lr": ("max_lr",),
    "per_device_train_batch_size": ("micro_batch_size",),
    "train_micro_batch_size_per_gpu": ("micro_batch_size",),
    "per_device_eval_batch_size": ("micro_batch_size", "batch_size"),
    "train_batch_size": ("batch_size",),
    "gradient_accumulation_steps": ("batch_size",),
    "num_train_epochs": ("max_steps",),
    "epochs": ("max_steps",),
    "warmup_ratio": ("warmup_steps",),
    "lr_scheduler_type": ("schedule",),
    "bf16": ("precision bf16",),
    "fp16": ("precision fp16",),
    "dtype": ("precision",),
    "torch_dtype": ("precision",),
    "report_to": ("tracker",),
    "model_name_or_path": ("init", "generator", "energy"),
    "model": ("generator", "energy", "init"),
    "tokenizer_name": ("tokenizer",),
    "train_file": ("train",),
    "dataset_name": ("train", "windows", "input"),
    "validation_file": ("valid",),
    "output_dir": ("output",),
    "overwrite_output_dir": ("overwrite",),
    "eval_steps": ("validate_every",),
    "save_steps": ("save_every",),
    "early_stopping_patience": ("patience",),
    "resume_from_checkpoint": ("resume",),
    "deepspeed": ("deepspeed_config",),
    "max_seq_length": ("window",),
    "block_size": ("window",),
    "num_return_sequences": ("negatives", "samples"),
    "tensor_parallel_size": ("tensor_parallel",),
    "gpu_memory_utilization": ("gpu_memory",),
    "max_num_seqs": ("sequences",),
}


class Parser(argparse.ArgumentParser):
    """argparse's parser, with the script's docstring as its help, no abbreviations, and errors as UserErrors."""

    def __init__(self, description: str | None = None, add_help: bool = True):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, add_help=add_help, allow_abbrev=False, formatter_class=formatter)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:200]}: see --help")

    def refuse_foreign(self, words: Sequence[str], misspelt: bool) -> None:
        """Names flags of other libraries, and, if asked for, those that are nearly ours, before what is missing."""
        known = [option.removeprefix("--") for option in self._option_string_actions if option.startswith("--")]
        for word in words:
            given = word.partition("=")[0]
            if not given.startswith("--") or given in ("--", *self._option_string_actions):
                continue
            name = given[2:].replace("-", "_")
            ours = [own for own in (name, *ELSEWHERE.get(name, ())) if own.partition(" ")[0] in known]
            if ours:
                raise UserError(f"{given[:60]}: here it is --{ours[0]}: see --help")
            if misspelt and (near := get_close_matches(name, known, n=1, cutoff=0.75)):
                raise UserError(f"{given[:60]}: there is none, perhaps --{near[0]}: see --help")
