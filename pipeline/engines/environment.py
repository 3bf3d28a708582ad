"""What has to be said to vLLM and torch before they are imported: mostly, to be quiet."""

import logging
import os
import shutil
import warnings


def prepare_environment() -> None:
    """Settings of the process that holds an engine; what the user has set stays."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # An engine in a process of its own ends with the run, and leaves the system to clear its locks away.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        # vLLM's CPU build compiles a step of its sampler when it first runs; without a compiler, torch does the same.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # an engine in this process starts in a fifth of the time
    logging.getLogger("vllm.triton_utils.importing").setLevel(logging.ERROR)  # it warns before vLLM hears of levels
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")  # vLLM's to mend
