"""What evaluation's results are called and look like: the JSON Schemas and the Arrow schemas of its files.

A report reads what the jobs write, and both take the names from here. Nothing else spells a column list.
"""

import pyarrow as pa

from schemas import read_schema

BOUNDS_FILE, GRID_FILE, ANALYSIS_FILE, HUMAN_FILE = "bounds.json", "grid.json", "analysis.json", "human.json"
FINDINGS_FILE = "findings.json"
SAMPLES_FILE, CONTEXTS_FILE, CELLS_FILE = "samples.parquet", "contexts.parquet", "grid.parquet"
BOUNDS, GRID, ANALYSIS = read_schema("bounds"), read_schema("accuracies"), read_schema("analysis")
DETECTION, HUMAN, FINDINGS = read_schema("detection"), read_schema("human"), read_schema("findings")

# The completions of one context, and where each is from: the corpus, the joint model, the generator, and of all that
# the generator drew those of the lowest and of the highest energy. Prompts have no real one; token by token there is
# neither a best nor a worst one; of a generator alone there are base and real, and no column of energies.
COMPLETIONS = ("real", "chosen", "base", "best", "worst")
SAMPLES = pa.schema(
    [
        ("window_id", pa.string()),
        ("context", pa.list_(pa.int64())),
        *(field for name in COMPLETIONS for field in ((name, pa.list_(pa.int64())), (f"{name}_energy", pa.float64()))),
        ("energies", pa.list_(pa.float64())),
        ("effective_samples", pa.float64()),
        *((f"{name}_text", pa.string()) for name in ("context", *COMPLETIONS)),
    ]
)

# A context: its real completion's number of tokens and log-probability, its real window's energy, and the estimates of
# its log Z.
CONTEXTS = pa.schema(
    [
        ("window_id", pa.string()),
        ("context_length", pa.int64()),
        ("tokens", pa.int64()),
        ("log_p", pa.float64()),
        ("energy", pa.float64()),
        ("log_z_lower", pa.float64()),
        ("log_z_upper", pa.float64()),
        ("log_z_midpoint", pa.float64()),
        ("standard_error", pa.float64()),
        ("effective_samples", pa.float64()),
        ("tail_index", pa.float64()),
        ("samples", pa.int64()),
    ]
)

# A cell of a grid, as grid.json has it, but for what is no single value.
CELLS = pa.schema(
    [
        ("row", pa.string()),
        ("column", pa.string()),
        ("setting", pa.string()),
        *((name, pa.float64()) for name in ("accuracy", "low", "high", "auroc", "real", "generated")),
        ("windows", pa.int64()),
        ("paper", pa.float64()),
        ("problem", pa.string()),
    ]
)

# A whole text, what it is if that is known, and what an energy model finds; with a baseline, its score too.
DETECTIONS = pa.schema(
    [
        ("id", pa.string()),
        ("file", pa.string()),
        ("label", pa.string()),
        ("score", pa.float64()),
        ("probability", pa.float64()),
        ("blocks", pa.int64()),
        ("tokens", pa.int64()),
        ("short", pa.bool_()),
        ("problem", pa.string()),
    ]
)
TFIDF_SCORE = pa.field("tfidf", pa.float64())
