"""The web process of `make up`: brings the database and the static files up to date, then serves with one uvicorn."""

import os
import socket
import sys

import django
import uvicorn
from django.core.management import call_command

# An answer that streams may finish, but nobody who stops the server waits longer than this.
GRACEFUL_SECONDS = 3
# As uvicorn's own command has it.
STARTUP_FAILURE = 3
# What the system keeps for a reader who is slower than the answer. Left to itself it grows to megabytes, which would be
# as much of an answer that nobody reads, made, paid for and kept in memory before the model is held up.
SEND_BUFFER_BYTES = 128 * 1024


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    django.setup()
    # In this process rather than in one before it, since loading Django takes longer than both together.
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    config = uvicorn.Config(
        "config.asgi:application",
        host=host,
        port=port,
        log_config=None,
        # It would tell what people searched for.
        access_log=False,
        # Whom to believe about where a request comes from is for `TRUSTED_PROXIES` to say.
        proxy_headers=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    listener = config.bind_socket()
    # Each connection that is accepted inherits it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    if not server.started:
        sys.exit(STARTUP_FAILURE)


if __name__ == "__main__":
    main()
