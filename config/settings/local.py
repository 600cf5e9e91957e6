"""This machine, as `make up` runs it: plain HTTP on a local port, on the embedded servers unless the environment names others."""

from config.settings.base import *  # noqa: F403
