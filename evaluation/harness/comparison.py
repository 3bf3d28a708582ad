"""Tasks of lm-evaluation-harness, by the language model alone and by the joint model, at both of its bounds."""

import os
from collections.abc import Sequence
from typing import Any

from evaluation.harness.language_model import LOWER, UPPER, ResidualEnergyModel
from evaluation.harness.pair import Pair
from evaluation.results.cache import ResultCache
from pipeline.runtime.errors import UserError, first_line

BASE, JOINT_LOWER, JOINT_UPPER = "base", "joint_lower", "joint_upper"


def models_of(pair: Pair, kept: ResultCache, **settings: Any) -> dict[str, ResidualEnergyModel]:
    """What is put side by side. Both bounds are of the same samples: the second costs nothing."""
    found = {BASE: ResidualEnergyModel(pair.alone(), kept=kept, **settings)}
    if pair.joint is not None:
        found[JOINT_LOWER] = ResidualEnergyModel(pair, kept=kept, bound=LOWER, **settings)
        found[JOINT_UPPER] = ResidualEnergyModel(pair, kept=kept, bound=UPPER, **settings)
    return found


def compared(
    models: dict[str, ResidualEnergyModel],
    tasks: Sequence[str],
    include_path: str | None = None,
    num_fewshot: int | None = None,
    limit: int | None = None,
    bootstrap: int = 1000,
) -> dict[str, dict[str, Any]]:
    """The harness's own results of each model, with what is to be said of the bounds in their `config`."""
    from lm_eval import simple_evaluate

    manager = manager_of(tasks, include_path)
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # its bootstrap would fork a process that holds a network
    return {
        name: simple_evaluate(
            model=model,
            tasks=list(tasks),
            num_fewshot=num_fewshot,
            limit=limit,
            bootstrap_iters=bootstrap,
            task_manager=manager,
            log_samples=False,
        )
        for name, model in models.items()
    }


def manager_of(tasks: Sequence[str], include_path: str | None) -> Any:
    """Where tasks are found: among one's own, and only if they are not there, among the harness's thousands."""
    from lm_eval.tasks import TaskManager

    if include_path is not None and not os.path.isdir(include_path):
        raise UserError(f"--include_path {include_path}: there is no such folder")
    try:
        manager = TaskManager(include_path=include_path, include_defaults=False)
        if not set(tasks) <= set(manager.all_tasks):
            manager = TaskManager(include_path=include_path)
    except (OSError, ValueError) as error:
        raise UserError(f"--include_path {include_path}: its tasks cannot be read ({first_line(error)})") from None
    if unknown := [task for task in tasks if task not in manager.all_tasks]:
        raise UserError(f"--tasks {unknown[0]}: the harness knows no such task: lm_eval ls tasks lists them")
    return manager


def table_of(results: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A row for every number of every task, a column for every model; standard errors after ±."""
    first, *_ = results.values()
    rows = [["task", "", *results]]
    for task, metrics in first["results"].items():
        for metric, value in metrics.items():
            name, _, rule = metric.partition(",")
            if isinstance(value, float) and not name.endswith("_stderr"):
                shown = f"{name} ({rule})" if rule not in ("", "none") else name
                rows.append([task, shown, *(cell(found["results"][task], name, rule) for found in results.values())])
    return rows


def cell(metrics: dict[str, Any], name: str, rule: str) -> str:
    value, error = metrics.get(f"{name},{rule}"), metrics.get(f"{name}_stderr,{rule}")
    if not isinstance(value, float):
        return ""
    return f"{value:.4f} ± {error:.4f}" if isinstance(error, float) else f"{value:.4f}"
