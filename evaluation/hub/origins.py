"""Repositories that a page names as where something comes from: only those whose digests are the recorded ones."""

from collections.abc import Iterable, Sequence
from typing import Any

from evaluation.hub.subjects import ModelSubject, StoreSubject
from pipeline.models.model_folder import open_model_folder
from pipeline.runtime.errors import UserError
from pipeline.runtime.hub import HUB
from pipeline.stores.manifest import read_manifest


def check_base_model(name: str | None, subject: ModelSubject | StoreSubject) -> None:
    """Refuses a base model whose weights are not those that the training says it started from."""
    if name is None:
        return
    if not isinstance(subject, ModelSubject):
        raise UserError(f"--base_model {name}: a store is made from no weights, see --dataset")
    known = {digest for digest in map(subject.model.provenance.get, ("init", "base")) if digest}
    if not known:
        raise UserError(f"--base_model {name}: {subject.model.name} does not say that it started from other weights")
    if (digest := open_model_folder(f"{HUB}{name}").weights_digest) not in known:
        raise UserError(
            f"--base_model {name}: its weights have the digest {digest[:16]}, and {subject.model.name} started from "
            f"{', '.join(str(one)[:16] for one in sorted(known))}"
        )


def check_data_sets(names: Sequence[str], subject: ModelSubject | StoreSubject) -> None:
    """Refuses a store on the hub that is not what the model was trained on, or what the store was made from."""
    known = set(parents_of(subject))
    for name in names:
        digest = read_manifest(f"{HUB}datasets/{name}").digest
        if digest not in known:
            raise UserError(
                f"--dataset {name}: a store with the digest {digest[:16]}, and {subject.what} names "
                f"{', '.join(sorted(one[:16] for one in known)) or 'none'}"
            )


def parents_of(subject: ModelSubject | StoreSubject) -> Iterable[str]:
    """The digests of the stores that something was made from."""
    if isinstance(subject, StoreSubject):
        parent = subject.store.manifest.parent
        return [parent["digest"]] if parent else []
    known = subject.model.provenance
    stores = [store.get("digest") for store in stores_of(known)]
    return [str(digest) for digest in (*stores, known.get("train")) if digest]


def stores_of(provenance: dict[str, Any]) -> list[dict[str, Any]]:
    """The negatives that an energy model was trained on, as its training described them."""
    found = provenance.get("stores")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
