"""Writes an energy model of kind bit as a classifier that transformers has: exactly the same energies, without us.

  python training/export_classifier.py models/books-energy --output books-detector

The folder opens with AutoModelForSequenceClassification and pipeline("text-classification"): logit = -E, high for real
text. Models of --preset encoder and decoder are such folders already; linear, bilstm, unit and unmasked models fit none
of transformers' classes, and open with AutoModel.from_pretrained once this project has been imported.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.models.file_digests import write_digests
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary
from training.energy.folder import open_energy_model


@dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """A model, and where its other form goes."""

    model: str = setting(help="an energy model of kind bit", metavar="MODEL", positional=True)
    output: str = setting(help="the folder of the classifier", metavar="DIR")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ExportSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    print_summary(f"classifier {settings.output}", export_classifier(settings))
    return 0


def export_classifier(settings: ExportSettings) -> dict[str, str]:
    """Writes the folder, whole or not at all; what there is to say of it."""
    from training.energy.electra import as_electra

    model = open_energy_model(settings.model)
    if os.path.lexists(settings.output):
        raise UserError(f"{settings.output}: it is there already: choose another folder, or remove it")
    classifier, tokenizer = as_electra(model)
    parent = os.path.dirname(os.path.abspath(settings.output))
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(dir=parent)
    try:
        classifier.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        write_digests(temporary)
        os.chmod(temporary, 0o755)
        os.rename(temporary, settings.output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {
        "class": type(classifier).__name__,
        "positions": f"{tokenizer.model_max_length:,}",
        "open it": f'pipeline("text-classification", model="{settings.output}")',
    }


if __name__ == "__main__":
    exit_with(main)
