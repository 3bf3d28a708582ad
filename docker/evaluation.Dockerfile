# Scoring and tables: python evaluation/<job>.py.
FROM python:3.11-slim

WORKDIR /opt/residual-ebm
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY schemas schemas
COPY pipeline pipeline
COPY training training
COPY evaluation evaluation
COPY studies studies
ENV PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
RUN python requirements/install.py --system --editable --accelerator gpu --extras evaluation,windows

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["python"]
