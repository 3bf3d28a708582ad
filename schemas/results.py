"""What evaluation's results are called and look like: the JSON Schemas of the files, and the columns of samples.

A report reads what the jobs write, and both take the names from here.
"""

import pyarrow as pa

from schemas import read_schema

BOUNDS_FILE, GRID_FILE, ANALYSIS_FILE, HUMAN_FILE = "bounds.json", "grid.json", "analysis.json", "human.json"
SAMPLES_FILE = "samples.parquet"
BOUNDS, GRID, ANALYSIS = read_schema("bounds"), read_schema("accuracies"), read_schema("analysis")
DETECTION, HUMAN = read_schema("detection"), read_schema("human")

# The completions of one context, and where each is from: the corpus, the joint model, the generator, and of all that
# the generator drew those of the lowest and of the highest energy. Prompts have no real one; token by token there is
# neither a best nor a worst one.
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
