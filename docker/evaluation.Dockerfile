# Scoring and tables: python evaluation/<job>.py.
FROM python:3.11-slim

WORKDIR /opt/residual-ebm
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY pipeline pipeline
COPY training training
COPY evaluation evaluation
RUN pip install --no-cache-dir -e '.[evaluation,windows]'

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["python"]
