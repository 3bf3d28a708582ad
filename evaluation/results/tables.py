"""Results that show themselves in notebooks: the dictionaries that bounds.json and grid.json hold, as tables."""

from typing import Any

from pipeline.runtime.html import html_list, html_table

MOST_WARNINGS = 5


class BoundsTable(dict[str, Any]):
    """Perplexities of the base language model and of the joint one: what bounds.json says."""

    def _repr_html_(self) -> str:
        joint, effective = self["joint_perplexity"], self["effective_samples"]
        rows = [
            ("base language model", f"{self['base_perplexity']:.4f}"),
            ("joint model", f"{joint['lower']:.4f} to {joint['upper']:.4f} (the upper bound is asymptotic)"),
            *((name, f"{value:.4f}") for name, value in self.get("language_models", {}).items()),
            (
                "effective samples",
                f"{effective['median']:,.1f} of a context (median), {effective['least']:,.1f} (least)",
            ),
        ]
        title = f"Perplexity of {self['contexts']:,} completions, {self['samples']:,} samples each"
        return html_table(title, rows) + html_list(self["warnings"][:MOST_WARNINGS])


class GridTable(dict[str, Any]):
    """Accuracies of models (rows) on test sets (columns): what grid.json says."""

    def _repr_html_(self) -> str:
        cells = {(cell["row"], cell["column"]): cell for cell in self["cells"]}
        rows = [[row, *(_accuracy(cells[row, column]) for column in self["columns"])] for row in self["rows"]]
        remarks = [f"{cell['row']} on {cell['column']}: {said}" for cell in self["cells"] for said in _remarks(cell)]
        return html_table(self["title"], rows, ["", *self["columns"]]) + html_list(remarks)


def _accuracy(cell: dict[str, Any]) -> str:
    if "problem" in cell:
        return "–"
    beside = f"; paper {cell['paper']:.1%}" if "paper" in cell else ""
    return f"{cell['accuracy']:.1%} ±{(cell['high'] - cell['low']) * 50:.1f} ({cell['setting']}{beside})"


def _remarks(cell: dict[str, Any]) -> list[str]:
    return [cell["problem"]] if "problem" in cell else list(cell.get("warnings", []))
