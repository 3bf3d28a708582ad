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

# Somebody who is not root, and a home that any other user can write caches to: docker run --user $(id -u):$(id -g).
RUN useradd --uid 1000 --create-home ebm && chmod 1777 /home/ebm
ENV HOME=/home/ebm USER=ebm

# FlashInfer's sampler would be compiled with CUDA's own compiler, which is not here, and knows no seed of a request: vLLM
# would start it, and then take its own for every sample of ours.
ENV VLLM_USE_FLASHINFER_SAMPLER=0
# Dataflow puts the driver there.
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Started by Dataflow it is root, as that mounts folders of root's for the worker to write to.
ENTRYPOINT ["/opt/apache/beam/boot"]
