"""What the paper measured, in percent or perplexity, to stand beside our own numbers."""

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
