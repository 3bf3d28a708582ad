# Workers that make windows, or mine negatives without a GPU.
FROM python:3.11-slim

RUN apt-get update && apt-get install --yes --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/residual-ebm
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY pipeline pipeline
COPY training training
COPY evaluation evaluation
# torchvision and its like come along with vLLM, cannot load beside CPU torch, and break importing models.
RUN pip install --no-cache-dir '.[mining-cpu]' 'apache-beam[gcp]==2.77.0' \
    && pip uninstall --yes torchvision torchaudio torchcodec

COPY --from=apache/beam_python3.11_sdk:2.77.0 /opt/apache/beam /opt/apache/beam

ENTRYPOINT ["/opt/apache/beam/boot"]
