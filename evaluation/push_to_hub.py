"""Sends a model or a store to the Hugging Face hub, with a page that says what its files say.

  python evaluation/push_to_hub.py models/energy --repo user/energy --license mit --metrics results/grid/grid.json
  python evaluation/push_to_hub.py stores/negatives --repo user/negatives --private
  python evaluation/push_to_hub.py models/lm --repo user/lm --dry_run

What is sent is whole: every digest is compared first, and it arrives in one commit. A killed run continues when it is
called again, and what is there already is not sent twice. Models become models, stores data sets, which
`datasets.load_dataset("user/name")` opens and which commands read as hf://datasets/user/name; a model's name does
wherever its folder does (--energy user/energy). A manifest and a config.json go as they are, with the paths in them.

The token is huggingface_hub's: HF_TOKEN, or `hf auth login`. It is written nowhere.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.hub.metrics import Measured, read_metrics
from evaluation.hub.origins import check_base_model, check_data_sets
from evaluation.hub.subjects import ModelSubject, StoreSubject, find_subject
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.hub import HUB
from pipeline.runtime.hub_upload import CARD, DATA_SET, MODEL, Upload, check_repo
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary

PAGE = "the page"


@dataclass(frozen=True, kw_only=True)
class PushSettings(Settings):
    """What is sent where, and what its page says beside what the files say."""

    folder: str = setting(metavar="FOLDER", help="of a model or a store, on any filesystem", positional=True)
    repo: str = setting(metavar="USER/NAME", help="of the hub; it is made if it is not there")
    private: bool = setting(False, help="for you alone; one that is there already and public is refused")
    license: str | None = setting(
        None, help="one of the hub's names, such as apache-2.0 (default: not stated)", group=PAGE
    )
    metrics: tuple[str, ...] = setting(
        (),
        metavar="FILE",
        help="grid.json, bounds.json, or what detect.py writes, of this model",
        several=True,
        group=PAGE,
    )
    base_model: str | None = setting(
        None, metavar="USER/NAME", help="on the hub, of the weights that it started from, by their digest", group=PAGE
    )
    dataset: tuple[str, ...] = setting(
        (),
        metavar="USER/NAME",
        help="a store on the hub that it was made from, by its digest; several times",
        group=PAGE,
    )
    card: str | None = setting(None, metavar="FILE", help="keep a copy of the page", group=PAGE)
    dry_run: bool = setting(False, help="show the page and the files, and send nothing", recorded=False)

    def check(self) -> None:
        for name in (self.repo, *self.dataset, *([self.base_model] if self.base_model else [])):
            check_repo(name)
        if self.license is not None and not re.fullmatch(r"[a-z0-9.+-]+", self.license):
            raise UserError(f"--license {self.license}: one of the hub's names is needed, such as apache-2.0 or other")


@dataclass(frozen=True)
class Pushed:
    """The page, the files with their bytes, and the commit that has them; none after a dry run."""

    what: str
    kind: str
    page: str
    sizes: dict[str, int]
    commit: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(PushSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(settings, push_to_hub(settings))
    return 0


def push_to_hub(settings: PushSettings) -> Pushed:
    """Checks what is in the folder, writes its page, and sends both."""
    subject = find_subject(settings.folder)
    page, kind = card_of(settings, subject), MODEL if isinstance(subject, ModelSubject) else DATA_SET
    if settings.card is not None:
        files.put(settings.card, page.encode())
    with subject.local() as here:
        sent = {name: files.info(path).size or 0 for name, path in here.items()} | {CARD: len(page.encode())}
        upload = Upload(settings.repo, kind, {**here, CARD: page.encode()}, subject.is_ours)
        if settings.dry_run:
            upload.check()
            return Pushed(subject.what, kind, page, sent, None)
        commit = upload.send(settings.private, f"Upload a {subject.what}")
    return Pushed(subject.what, kind, page, sent, commit)


def card_of(settings: PushSettings, subject: ModelSubject | StoreSubject) -> str:
    from evaluation.hub.model_card import model_card
    from evaluation.hub.store_card import store_card

    check_base_model(settings.base_model, subject)
    check_data_sets(settings.dataset, subject)
    if isinstance(subject, StoreSubject):
        if settings.metrics:
            raise UserError(f"--metrics: {settings.folder} is a store, and metrics are of models")
        return store_card(subject, settings.repo, settings.license, settings.dataset)
    found = Measured()
    if settings.metrics:
        found = read_metrics(settings.metrics, subject.model.weights_digest, settings.folder)
    return model_card(subject, settings.repo, settings.license, settings.base_model, settings.dataset, found)


def describe(settings: PushSettings, pushed: Pushed) -> None:
    if pushed.commit is None:
        print(pushed.page)
        for name, length in pushed.sizes.items():
            print(f"{length:>16,} bytes  {name}")
    address = f"{HUB}datasets/{settings.repo}" if pushed.kind == DATA_SET else settings.repo
    size = f"{len(pushed.sizes):,} files, {sum(pushed.sizes.values()) / 1e6:,.1f} MB"
    facts = {"files": size, "commit": pushed.commit or "none, this was a dry run", "read it as": address}
    print_summary(f"{pushed.what} {settings.folder} to {settings.repo}", facts)


if __name__ == "__main__":
    exit_with(main)
