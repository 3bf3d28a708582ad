# Workers that mine negatives on GPUs: vLLM, Beam's worker, and this project. On Dataflow it is the SDK container.
FROM python:3.11-slim AS mining

# vLLM compiles small kernels when it starts.
RUN apt-get update && apt-get install --yes --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/residual-ebm
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY schemas schemas
COPY pipeline pipeline
COPY training training
COPY evaluation evaluation
COPY studies studies
ENV PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
RUN python requirements/install.py --system --accelerator gpu --extras mining-gpu,dataflow

COPY --from=apache/beam_python3.11_sdk:2.77.0 /opt/apache/beam /opt/apache/beam

# Dataflow puts the driver there.
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["/opt/apache/beam/boot"]
