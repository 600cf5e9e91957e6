"""For `make up` on this machine: plain HTTP on a local port, on embedded servers unless others are named."""

from config.settings.base import *
