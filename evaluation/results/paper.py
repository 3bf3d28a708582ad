"""What the paper measured, in percent or perplexity, to stand beside our own numbers."""

from dataclasses import dataclass

# Each table: row, then column.
ACCURACY: dict[str, dict[str, dict[str, float]]] = {
    "in_domain": {
        "Linear": {"Books": 59.8, "CCNews": 58.6, "Wiki": 56.3},
        "BiLSTMsmall": {"Books": 84.7, "CCNews": 77.6, "Wiki": 71.0},
        "BiLSTMbig": {"Books": 86.7, "CCNews": 80.1, "Wiki": 72.8},
        "UniT": {"Books": 91.7, "CCNews": 88.4, "Wiki": 76.4},
        "TransfBig (log-likelihood)": {"Books": 57.1, "CCNews": 50.8, "Wiki": 50.5},
    },
    "cross_architecture": {
        "Conv": {"Conv": 92.9, "TransfSmall": 81.2},
        "TransfSmall": {"Conv": 86.5, "TransfSmall": 87.9},
    },
    "cross_corpus": {
        "Wiki": {"Books": 70.9, "CCNews": 73.6, "Wiki": 76.4},
        "Books": {"Books": 91.7, "CCNews": 63.5, "Wiki": 59.1},
        "Books + Wiki": {"Books": 91.5, "CCNews": 73.6, "Wiki": 78.3},
        "CCNews": {"Books": 60.6, "CCNews": 88.4, "Wiki": 65.5},
        "Books + CCNews": {"Books": 90.4, "CCNews": 88.5, "Wiki": 68.3},
        "CCNews + Wiki": {"Books": 73.5, "CCNews": 88.3, "Wiki": 81.0},
        "ALL (UniT)": {"Books": 90.4, "CCNews": 88.5, "Wiki": 80.9},
        "ALL (BiT)": {"Books": 94.1, "CCNews": 94.1},
    },
    "wild": {
        "TF-IDF": {
            "Small top-k": 96.79,
            "Small temp=1": 88.29,
            "Med top-k": 95.22,
            "Med temp=1": 88.94,
            "Big top-k": 94.43,
            "Big temp=1": 77.16,
            "Huge top-k": 94.43,
            "Huge temp=1": 77.31,
        },
        "BiT in-domain": {
            "Small top-k": 99.09,
            "Small temp=1": 99.80,
            "Med top-k": 98.07,
            "Med temp=1": 99.43,
            "Big top-k": 96.50,
            "Big temp=1": 99.42,
            "Huge top-k": 95.01,
            "Huge temp=1": 99.00,
        },
        "BiT cross-architecture": {
            "Med top-k": 97.37,
            "Med temp=1": 97.35,
            "Big top-k": 93.58,
            "Big temp=1": 95.96,
            "Huge top-k": 90.17,
            "Huge temp=1": 91.76,
        },
        "BiT wild": {
            "Small top-k": 93.25,
            "Small temp=1": 66.04,
            "Med top-k": 88.19,
            "Med temp=1": 55.06,
            "Big top-k": 83.88,
            "Big temp=1": 64.03,
            "Huge top-k": 79.18,
            "Huge temp=1": 61.29,
        },
    },
}

# Test perplexity; joint models between their bounds.
PERPLEXITY: dict[str, dict[str, tuple[float, float]]] = {
    "Base LM": {"CCNews": (17.57, 17.57), "Books": (18.29, 18.29)},
    "RALM": {"CCNews": (16.17, 16.17), "Books": (17.85, 17.85)},
    "BALM": {"CCNews": (15.74, 15.74), "Books": (16.99, 16.99)},
    "Joint UniT": {"CCNews": (15.57, 15.58), "Books": (16.98, 17.00)},
    "Joint BiT-Base": {"CCNews": (14.61, 14.64)},
    "Base LM-24L": {"CCNews": (14.89, 14.89), "Books": (18.14, 18.14)},
    "RALM-24L": {"CCNews": (14.89, 14.89), "Books": (18.17, 18.17)},
    "BALM-24L": {"CCNews": (13.92, 13.92), "Books": (18.24, 18.24)},
    "Joint UniT (24L)": {"CCNews": (13.81, 13.82), "Books": (17.46, 17.48)},
    "Joint BiT-Base (24L)": {"CCNews": (13.01, 13.03)},
    "Joint BiT-Med (24L)": {"CCNews": (12.38, 12.42)},
    "Joint BiT-Base*": {"CCNews": (14.37, 14.42), "Books": (15.72, 15.74)},
    "Joint BiT-Large*": {"CCNews": (13.97, 14.00), "Books": (15.33, 15.36)},
    "Joint BiT-Base* (24L)": {"CCNews": (12.93, 12.95), "Books": (16.17, 16.18)},
    "Joint BiT-Large* (24L)": {"CCNews": (12.10, 12.16), "Books": (15.17, 15.22)},
}

# The same on the validation set.
VALID_PERPLEXITY: dict[str, dict[str, tuple[float, float]]] = {
    "Base LM": {"CCNews": (18.41, 18.41), "Books": (16.16, 16.16)},
    "RALM": {"CCNews": (17.01, 17.01), "Books": (15.71, 15.71)},
    "BALM": {"CCNews": (16.50, 16.50), "Books": (15.00, 15.00)},
    "Joint UniT": {"CCNews": (16.42, 16.44), "Books": (15.12, 15.13)},
    "Joint BiT-Base": {"CCNews": (15.32, 15.35)},
    "Base LM-24L": {"CCNews": (15.71, 15.71), "Books": (15.61, 15.61)},
    "RALM-24L": {"CCNews": (15.70, 15.70), "Books": (15.63, 15.63)},
    "BALM-24L": {"CCNews": (14.58, 14.58), "Books": (15.20, 15.20)},
    "Joint UniT (24L)": {"CCNews": (14.59, 14.61), "Books": (15.12, 15.16)},
    "Joint BiT-Base (24L)": {"CCNews": (13.68, 13.69)},
    "Joint BiT-Med (24L)": {"CCNews": (12.97, 13.01)},
    "Joint BiT-Base*": {"CCNews": (15.11, 15.17), "Books": (14.14, 14.16)},
    "Joint BiT-Large*": {"CCNews": (14.59, 14.61), "Books": (13.80, 13.83)},
    "Joint BiT-Base* (24L)": {"CCNews": (13.60, 13.62), "Books": (14.11, 14.12)},
    "Joint BiT-Large* (24L)": {"CCNews": (12.71, 12.77), "Books": (13.30, 13.34)},
}

# Test perplexity of the generators of the cross-architecture table, on Wikitext.
GENERATOR_PERPLEXITY = {"Conv": 35.4, "TransfSmall": 33.5}

# Of the cross-architecture table: rows averaged over their columns.
CROSS_ARCHITECTURE_MEANS = {"Conv": 87.1, "TransfSmall": 87.2}

# OpenAI's own detectors on the same files, which the wild table has in brackets.
OPENAI: dict[str, dict[str, float]] = {
    "in-domain": {"Small top-k": 99.3, "Med top-k": 98.5, "Big top-k": 97.9, "Huge top-k": 96.0},
    "cross-architecture": {"Med top-k": 96.6, "Big top-k": 90.9, "Huge top-k": 79.3},
}


@dataclass(frozen=True)
class HumanRate:
    """In how many percent of 333 sentences fewer (<), or not more (≤), raters prefer model 1 than model 2."""

    model_1: str
    relation: str
    model_2: str
    rate: float
    p_value: float


HUMAN = (
    HumanRate("Base LM", "<", "Joint UniT", 52.85, 0.16),
    HumanRate("Base LM", "<", "Joint BiT-Base", 56.25, 0.015),
    HumanRate("Base LM", "<", "Joint BiT-Large*", 58.93, 0.00084),
    HumanRate("Base LM", "<", "BALM", 46.77, 0.88),
    HumanRate("BALM", "<", "Joint UniT", 50.00, 0.52),
    HumanRate("BALM", "<", "Joint BiT-Base", 57.89, 0.0027),
    HumanRate("BALM", "<", "Joint BiT-Large*", 59.89, 0.00020),
    HumanRate("BALM-24L", "<", "Joint BiT-Med (24L)", 56.23, 0.015),
    HumanRate("Joint BiT-Large* (24L)", "<", "Human", 55.21, 0.036),
    HumanRate("Base LM", "≤", "BALM", 54.85, 0.050),
)

# A third detector: how many samples it takes for real, and its accuracy; of the base model and of Joint BiT-Med.
FALSE_POSITIVES = {"Base LM": 17.8, "Joint BiT-Med": 31.8}
THIRD_DETECTOR = {"Base LM": 89.9, "Joint BiT-Med": 82.9}

# Mean log-probability of real completions less that of the model's own samples, apart from its sign.
DENSITIES = {"Base LM": 21.64, "Joint BiT-Base": 6.20}

# Five tokens replaced along the gradient in one window of Wikitext: score and perplexity, before and after.
REPLACED = {"negative": ((-0.77, 20.77), (0.00, 117.30)), "positive": ((-0.25, 77.68), (-0.78, 142.85))}
