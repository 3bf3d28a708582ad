# Language models and energy models on GPU nodes. The entry point is the deepspeed launcher; torchrun, which comes with
# torch, starts the ranks of several machines without ssh.
FROM python:3.11-slim

# DeepSpeed compiles operators if a configuration asks for them.
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
RUN python requirements/install.py --system --editable --accelerator gpu --extras training

# Somebody who is not root, and a home that any other user can write caches to: docker run --user $(id -u):$(id -g).
RUN useradd --uid 1000 --create-home ebm && chmod 1777 /home/ebm
ENV HOME=/home/ebm USER=ebm
USER ebm

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["deepspeed"]
CMD ["training/train_lm.py", "--help"]
