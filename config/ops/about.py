"""`/about/`: what Recollect is, its version, and the licences of what is shipped."""

from functools import lru_cache
from importlib.metadata import Distribution, distributions

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from config import VERSION


@require_safe
def about(request: HttpRequest) -> HttpResponse:
    """For everybody who is logged in."""
    context = {"version": VERSION, "licence": "MIT", "packages": _packages()}
    return render(request, "intake/about.html", context)


# The script that draws diagrams, which `requirements/vendor.sh` fetches and `make audit` looks up.
SHIPPED_FILES = {"mermaid": ("11.17.2", "MIT")}


@lru_cache(maxsize=1)
def _packages() -> tuple[tuple[str, str, str], ...]:
    """Name, version and licence of every installed package, as its own metadata have them, and of shipped files."""
    found = {each.metadata["Name"]: (each.version, _licence(each)) for each in distributions() if each.metadata}
    found |= SHIPPED_FILES
    return tuple((name, *found[name]) for name in sorted(found, key=str.lower))


def _licence(package: Distribution) -> str:
    """An SPDX expression (PEP 639), or else the names in its metadata; empty if the package declares none."""
    metadata = package.metadata
    if expression := metadata["License-Expression"]:
        return expression
    names = [line.split(" :: ")[-1] for line in metadata.get_all("Classifier") or [] if line.startswith("License :: ")]
    # Some packages have the licence's whole text in place of its name.
    first, *rest = (metadata["License"] or "").strip().splitlines() or [""]
    return first.strip() if first and not (rest and names) else ", ".join(names)
