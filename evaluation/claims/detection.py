"""The paper's findings on telling real from generated text: architectures, baselines, corpora, generators, lengths."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from evaluation.claims.cells import BOOKS, CONV, NEWS, TRANSFORMER, WIKI, GridCell, cells_of, is_network, pairs
from evaluation.claims.decision import Claim, Finding, Measured, Part, above, part_of
from evaluation.detection.labels import CROSS_ARCHITECTURE, CROSS_CORPUS, ENERGY, IN_DOMAIN, LIKELIHOOD, TFIDF
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.results.paper import ACCURACY
from training.energy.names import BILSTM, BIT, LINEAR, UNIT

IN_DOMAIN_TABLE, ALL_UNIT, ALL_BIT = ACCURACY["in_domain"], "ALL (UniT)", "ALL (BiT)"
ON_PAR = -0.02  # a union that is less than this many points below training in-domain is on par with it
SMALL = 0.05  # points that a small loss stays below
NETWORKS = (BILSTM, UNIT, BIT)
NAMES = {LINEAR: "Linear", BILSTM: "BiLSTM", UNIT: "UniT", BIT: "BiT"}
BY_STRENGTH = (UNIT, BIT, BILSTM, LINEAR)  # whose accuracies stand for a corpus: the paper's UniT, if it is there


def detection_findings(found: StudyResults) -> Iterator[Finding]:
    cells = cells_of(found)
    networks = [cell for cell in cells if cell.role == ENERGY and cell.setting == IN_DOMAIN]
    alone = [cell for cell in networks if len(cell.trained_on) == 1]
    baselines = [cell for cell in cells if cell.role in (LIKELIHOOD, TFIDF)]
    yield ordered(alone, LINEAR, BILSTM)
    yield ordered(alone, BILSTM, UNIT)
    yield ordered(networks, UNIT, BIT)
    yield over_baseline(alone + baselines, LIKELIHOOD)
    yield over_baseline(alone + baselines, TFIDF)
    yield linear_over_likelihood(alone + baselines)
    yield order_of_corpora(alone)
    yield from cross_architecture(cells)
    yield in_domain_over_cross_corpus(cells)
    yield unions_on_par(cells)
    yield unions_on_the_third(cells)
    yield from prefix_length([one for one in found.of("analysis") if one.content["analysis"] == "prefix_length"])


def in_words(*rows: str) -> str:
    """Rows of the paper's in-domain table: `Linear 59.8 / 58.6 / 56.3`."""
    return ", ".join(f"{row} {' / '.join(map(str, IN_DOMAIN_TABLE[row].values()))}" for row in rows)


def against(one: GridCell, other: GridCell, line: float = 0.0) -> Part:
    """Two cells of one column."""
    what = f"{one.row} less {other.row} on {one.column}"
    return above(what, one.measured, other.measured, line)


def decided(claim: Claim, parts: list[Part], lacking: str, needed: bool = True) -> Finding:
    """A finding; one without parts was not measured."""
    return Finding(claim, parts, None if parts and needed else f"not measured: {lacking}")


ORDER_NUMBERS = {
    (LINEAR, BILSTM): in_words("Linear", "BiLSTMsmall", "BiLSTMbig"),
    (BILSTM, UNIT): in_words("BiLSTMsmall", "BiLSTMbig", "UniT"),
    (UNIT, BIT): ", ".join(
        f"{row} {' / '.join(map(str, list(ACCURACY['cross_corpus'][row].values())[:2]))}" for row in (ALL_UNIT, ALL_BIT)
    ),
}


def ordered(cells: list[GridCell], lower: str, higher: str) -> Finding:
    where = "Table cross-corpus, last two rows" if higher == BIT else "Table in-domain (Books / CCNews / Wiki)"
    claim = Claim(
        f"{lower}-below-{higher}",
        f"{NAMES[lower]} is less accurate than {NAMES[higher]}, in-domain",
        where,
        ORDER_NUMBERS[lower, higher],
    )
    found = pairs(cells, lambda cell: is_network(cell, higher), lambda cell: is_network(cell, lower))
    parts = [against(one, other) for one, other in found if one.trained_on == other.trained_on]
    return decided(claim, parts, f"no grid with both {NAMES[lower]} and {NAMES[higher]}, in-domain")


def over_baseline(cells: list[GridCell], baseline: str) -> Finding:
    names = {LIKELIHOOD: "the training generator's log-likelihood", TFIDF: "TF-IDF"}
    numbers = {
        LIKELIHOOD: in_words("BiLSTMsmall", "UniT", "TransfBig (log-likelihood)"),
        TFIDF: "on GPT-2's texts: " + ", ".join(wild_range(row) for row in ("BiT in-domain", "TF-IDF")),
    }
    where = {LIKELIHOOD: "Table in-domain", TFIDF: "Table in the wild (the paper has no TF-IDF in-domain)"}
    claim = Claim(
        f"networks-over-{baseline}",
        f"all networks are more accurate than {names[baseline]}, in-domain",
        where[baseline],
        numbers[baseline],
    )
    found = pairs(cells, lambda cell: is_network(cell, *NETWORKS), lambda cell: cell.role == baseline)
    return decided(claim, [against(*pair) for pair in found], f"no grid with a network and {names[baseline]}")


def wild_range(row: str) -> str:
    values = ACCURACY["wild"][row].values()
    return f"{row} {min(values)} to {max(values)}"


def linear_over_likelihood(cells: list[GridCell]) -> Finding:
    claim = Claim(
        "linear-over-likelihood",
        "even Linear is a little more accurate than the generator's log-likelihood",
        "Table in-domain (Books / CCNews / Wiki)",
        in_words("Linear", "TransfBig (log-likelihood)"),
    )
    found = pairs(cells, lambda cell: is_network(cell, LINEAR), lambda cell: cell.role == LIKELIHOOD)
    return decided(claim, [against(*pair) for pair in found], "no grid with Linear and a log-likelihood")


def order_of_corpora(cells: list[GridCell]) -> Finding:
    claim = Claim(
        "books-news-wiki",
        "Books is easiest, then CCNews, then Wikitext",
        "Section in-domain, table in-domain",
        in_words("UniT"),
    )
    for number in sorted({cell.grid for cell in cells}):
        for kind in BY_STRENGTH:
            own = {cell.corpus: cell for cell in cells if cell.grid == number and is_network(cell, kind)}
            if {BOOKS, NEWS, WIKI} <= own.keys():
                steps = ((BOOKS, NEWS), (NEWS, WIKI))
                parts = [
                    above(f"{NAMES[kind]} on {one} less on {other}", own[one].measured, own[other].measured)
                    for one, other in steps
                ]
                return Finding(claim, parts)
    return decided(claim, [], "no grid with one kind of network in-domain on all three corpora")


def cross_architecture(cells: list[GridCell]) -> Iterator[Finding]:
    table = ACCURACY["cross_architecture"]
    own, loss = table["TransfSmall"]["TransfSmall"], table["TransfSmall"]["TransfSmall"] - table["TransfSmall"]["Conv"]
    other = table["Conv"]["Conv"] - table["Conv"]["TransfSmall"]
    where = "Section and table cross-architecture"
    small = Claim(
        "cross-architecture-loss",
        f"trained on a Transformer's negatives, a network loses little on Conv's (less than {100 * SMALL:g} points)",
        where,
        f"TransfSmall {own} to Conv {table['TransfSmall']['Conv']}: {loss:.1f} points",
    )
    asymmetric = Claim(
        "cross-architecture-asymmetry",
        "it loses less from Transformer to Conv than from Conv to Transformer",
        where,
        f"{loss:.1f} against {other:.1f} points",
    )
    easier = Claim(
        "conv-easier",
        "Conv's negatives are easier to see than the Transformer's, in-domain",
        where,
        f"Conv {table['Conv']['Conv']}, TransfSmall {own}",
    )
    lacking = "no grid with a network trained and tested on both Conv's and a Transformer's negatives"
    square = cross_square(cells)
    if square is None:
        yield from (decided(claim, [], lacking) for claim in (small, asymmetric, easier))
        return
    same, mixed = square[TRANSFORMER, TRANSFORMER], square[TRANSFORMER, CONV]
    yield Finding(small, [part_of("on Conv less on Transformer", [(1, mixed), (-1, same)], -SMALL)])
    terms = [(-1.0, same), (1.0, mixed), (1.0, square[CONV, CONV]), (-1.0, square[CONV, TRANSFORMER])]
    yield Finding(asymmetric, [part_of("loss of Conv to Transformer less that of Transformer to Conv", terms)])
    yield Finding(easier, [above("on Conv less on Transformer, each in-domain", square[CONV, CONV], same)])


def cross_square(cells: list[GridCell]) -> dict[tuple[str, str], Measured] | None:
    """By generators in training and in testing, the accuracies of one kind of network on one corpus."""
    usable = [cell for cell in cells if cell.role == ENERGY and cell.setting in (IN_DOMAIN, CROSS_ARCHITECTURE)]
    for key in dict.fromkeys((cell.grid, cell.kind, cell.tested_on) for cell in usable):
        found = {}
        for cell in usable:
            families = cell.generators("trained"), cell.generators("tested")
            if (cell.grid, cell.kind, cell.tested_on) == key and cell.trained_on == cell.tested_on and all(families):
                found[families] = cell
        if len(found) == 4:
            return {(str(one), str(other)): cell.measured for (one, other), cell in found.items()}
    return None


def in_domain_over_cross_corpus(cells: list[GridCell]) -> Finding:
    table = ACCURACY["cross_corpus"]
    claim = Claim(
        "in-domain-over-cross-corpus",
        "a network trained on the corpus itself is more accurate than one trained on another",
        "Section and table cross-corpus",
        f"on Wiki: trained on it {table['Wiki']['Wiki']}, on Books {table['Books']['Wiki']}, on CCNews "
        f"{table['CCNews']['Wiki']}",
    )
    single = [cell for cell in cells if cell.role == ENERGY and len(cell.trained_on) == 1]
    found = pairs(single, lambda cell: cell.setting == IN_DOMAIN, lambda cell: cell.setting == CROSS_CORPUS)
    parts = [against(one, other) for one, other in found if one.kind == other.kind]
    return decided(claim, parts, "no grid with networks trained on the corpus itself and on another")


def unions_on_par(cells: list[GridCell]) -> Finding:
    table = ACCURACY["cross_corpus"]
    claim = Claim(
        "unions-on-par",
        f"trained on all corpora, a network is on par with in-domain training, or better (at most {-100 * ON_PAR:g} "
        f"points below)",
        "Section and table cross-corpus",
        ", ".join(
            f"{corpus} {table[ALL_UNIT][corpus]} against {table[corpus][corpus]}" for corpus in (BOOKS, NEWS, WIKI)
        ),
    )
    parts = []
    for one, other in pairs(cells, is_whole_union(cells), lambda cell: len(cell.trained_on) == 1):
        if one.kind == other.kind and other.role == ENERGY and other.setting == IN_DOMAIN:
            parts.append(against(one, other, ON_PAR))
    return decided(claim, parts, "no grid with a network trained on all corpora, and in-domain ones")


def is_whole_union(cells: list[GridCell]) -> Any:
    """Whether a cell's network was trained on as many corpora as any of its grid, and on more than one."""
    most: dict[int, int] = {}
    for cell in cells:
        most[cell.grid] = max(most.get(cell.grid, 0), len(cell.trained_on))
    return lambda cell: (
        cell.role == ENERGY and cell.setting == IN_DOMAIN and 1 < len(cell.trained_on) == most[cell.grid]
    )


def unions_on_the_third(cells: list[GridCell]) -> Finding:
    table = ACCURACY["cross_corpus"]
    claim = Claim(
        "unions-on-the-third",
        "on a third corpus, a network trained on two others is more accurate than those trained on one of them (their "
        "mean)",
        "Section and table cross-corpus",
        f"Wiki: Books + CCNews {table['Books + CCNews']['Wiki']}, Books {table['Books']['Wiki']}, CCNews "
        f"{table['CCNews']['Wiki']}",
    )
    networks = [cell for cell in cells if cell.role == ENERGY and cell.setting == CROSS_CORPUS]
    parts = []
    for union in [cell for cell in networks if len(cell.trained_on) == 2]:
        same = [
            cell
            for cell in networks
            if (cell.grid, cell.column, cell.kind) == (union.grid, union.column, union.kind)
            and len(cell.trained_on) == 1
            and cell.trained_on < union.trained_on
        ]
        for one, other in combinations(same, 2):
            what = f"{union.row} less the mean of {one.row} and {other.row}, on {union.column}"
            terms = [(1.0, union.measured), (-0.5, one.measured), (-0.5, other.measured)]
            parts.append(part_of(what, terms))
    return decided(claim, parts, "no grid with networks trained on one and on two other corpora")


def prefix_length(results: list[Result]) -> Iterator[Finding]:
    where = "Section on the effect of prefix length, its figure"
    harder = Claim(
        "longer-prefixes-harder",
        "the longer the prefix, the harder the task (networks trained on varying lengths)",
        where,
        "in a figure: no prefix is easiest, 120 and 140 of 160 tokens are hardest",
    )
    apart = Claim(
        "models-apart-with-length",
        "the longer the prefix, the further UniT is ahead of BiLSTM",
        where,
        "in a figure",
    )
    if not results:
        yield from (decided(claim, [], "no analysis of prefix_length") for claim in (harder, apart))
        return
    ends: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    unfit = []
    for result in results:
        trained = result.content.get("settings", {}).get("trained_lengths") or {}
        for label in dict.fromkeys(str(row["energy"]) for row in result.content["rows"]):
            own = [row for row in result.content["rows"] if row["energy"] == label]
            known = [row for row in own if row["context_length"] in (trained.get(label) or [])]
            if len(known) > 1:
                known.sort(key=lambda row: int(row["context_length"]))
                ends[label] = known[0], known[-1]
            else:
                unfit.append(label)
    lacking = f"trained on fewer than two of the tested lengths, or it is not known: {', '.join(unfit)}"
    parts = [
        above(
            f"{label} at {short['context_length']} less at {long['context_length']}",
            as_measured(short),
            as_measured(long),
        )
        for label, (short, long) in ends.items()
    ]
    yield Finding(harder, parts, None if parts else lacking)
    named = {family: label for family in (BILSTM, UNIT) for label in ends if label.startswith(family)}
    lengths = {tuple(row["context_length"] for row in ends[label]) for label in named.values()}
    if len(named) < 2 or len(lengths) > 1:
        why = "not measured: BiLSTM and UniT at the same lengths, trained on these"
        yield Finding(apart, [], lacking if unfit else why)
        return
    terms = []
    for weight, family in ((1.0, UNIT), (-1.0, BILSTM)):
        short, long = (as_measured(row) for row in ends[named[family]])
        terms += [(weight, long), (-weight, short)]
    (pair,) = lengths
    yield Finding(apart, [part_of(f"UniT less BiLSTM, at {pair[1]} less at {pair[0]}", terms)])


def as_measured(row: dict[str, Any]) -> Measured:
    return Measured(row["accuracy"], row["low"], row["high"])
