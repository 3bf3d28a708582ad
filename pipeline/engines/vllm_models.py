"""Which models vLLM can run: asked before an engine starts, and before anything is sent to a fleet."""

from importlib.util import find_spec

from pipeline.engines.environment import prepare_environment
from pipeline.models.language_model import LanguageModelFolder
from pipeline.models.model_folder import ModelFolder
from pipeline.runtime.errors import UserError, first_line


def head_size(model: ModelFolder) -> int:
    heads = int(model.config.num_attention_heads)
    return int(getattr(model.config, "head_dim", None) or model.config.hidden_size // heads)


def check_heads_on_cpu(model: ModelFolder) -> None:
    """Refuses heads for which vLLM's CPU build has no attention."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size, sizes = head_size(model), CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        raise UserError(
            f"{model.name}: heads of size {size}, vLLM on CPU has {', '.join(map(str, sizes))}: use --engine torch"
        )


def check_before_submission(model: LanguageModelFolder, window: int, on_gpus: bool) -> None:
    """Refuses a model that every worker's vLLM would refuse, hours later; vLLM itself is asked, and loads no weights.

    Whoever submits need not have vLLM: then, as where it finds no device that it was built for, nothing is known. On
    GPUs any size of heads has some attention: vLLM's FlexAttention, which it falls back to, takes all of them.
    """
    if find_spec("vllm") is None:
        return
    prepare_environment()
    from vllm.config import ModelConfig
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():
        return
    try:
        ModelConfig(model=model.folder, skip_tokenizer_init=True, max_model_len=window + 1, dtype="float32")
    except Exception as error:  # of pydantic's, whose message begins with a count of errors
        said = [line.strip() for line in str(error).splitlines() if not line.startswith("1 validation error")]
        reason = (said or [first_line(error)])[0].removeprefix("Value error, ").partition(" Supported ")[0]
        raise UserError(f"{model.name}: vLLM cannot run it ({reason.rstrip('.')}): use --engine torch") from None
    if not on_gpus:
        check_heads_on_cpu(model)
