"""What a test is, given what an energy model was trained on: one of the paper's four settings, found from manifests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.stores.reader import Store

IN_DOMAIN, CROSS_ARCHITECTURE, CROSS_CORPUS, WILD = SETTINGS = (
    "in-domain",
    "cross-architecture",
    "cross-corpus",
    "wild",
)
UNKNOWN = "unknown"
ENERGY, LIKELIHOOD, TFIDF = "energy", "likelihood", "tfidf"  # what can be tested


@dataclass(frozen=True)
class Origin:
    """Where negatives come from: the corpora of their windows, and the generators that drew them."""

    corpora: frozenset[str]
    architectures: frozenset[str]
    generator_digests: frozenset[str] = frozenset()

    def described(self) -> dict[str, list[str]]:
        return {"corpora": sorted(self.corpora), "architectures": sorted(self.architectures)}


def origin_of_stores(stores: Sequence[Store]) -> Origin:
    return origin(
        [{"corpus": store.manifest.settings.get("corpus"), "generator": store.manifest.generator} for store in stores]
    )


def origin(stores: Sequence[dict[str, Any]]) -> Origin:
    """Of stores as the provenance of an energy model, or a manifest, describes them."""
    generators = [store.get("generator") or {} for store in stores]
    return Origin(
        frozenset(str(store["corpus"]) for store in stores if store.get("corpus")),
        frozenset(str(generator["architecture"]) for generator in generators if generator.get("architecture")),
        frozenset(str(generator["digest"]) for generator in generators if generator.get("digest")),
    )


def setting_of(train: Origin, test: Origin) -> str:
    """A corpus, or an architecture, that was one of several in training counts as known."""
    if not (train.corpora and train.architectures and test.corpora and test.architectures):
        return UNKNOWN
    same_corpus, same_architecture = test.corpora <= train.corpora, test.architectures <= train.architectures
    if same_corpus:
        return IN_DOMAIN if same_architecture else CROSS_ARCHITECTURE
    return CROSS_CORPUS if same_architecture else WILD


def warning_about(train: Origin, test: Origin) -> str | None:
    """Test negatives of the very model that drew the training negatives make a test too easy."""
    if train.generator_digests & test.generator_digests:
        return "the test negatives are the training generator's own: take one that was trained from another seed"
    return None
