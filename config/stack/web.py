"""The web process of `make up`: one uvicorn, with Django's logging and without an access log, which would tell what
people searched for."""

import sys

import uvicorn

# An answer that streams may finish, but nobody who stops the server waits longer than this.
GRACEFUL_SECONDS = 3


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    uvicorn.run(
        "config.asgi:application",
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


if __name__ == "__main__":
    main()
