"""This machine, as `make up` runs it: plain HTTP on a local port, on embedded servers unless others are named."""

from config.settings.base import *
