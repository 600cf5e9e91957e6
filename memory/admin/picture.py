"""Draws a vector as a picture: one stroke for each value, so that an empty, constant or cut one is obvious."""

from dataclasses import dataclass

from pgvector import HalfVector

from memory.models import Embedding

# Of half the picture, in the units of its view box.
HEIGHT = 100


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG path over a box of `width` (one unit a value) by 200, with zero at its middle; and the extremes."""

    path: str
    width: int
    least: float
    greatest: float
    zeros: int


def picture_of(embedding: Embedding) -> Picture | None:
    """The picture of one vector; None if there is none yet. No one can read text from it."""
    vector = Embedding.objects.filter(pk=embedding.pk).values_list("vector", flat=True).first()
    return None if vector is None else draw(vector.to_list() if isinstance(vector, HalfVector) else list(vector))


def draw(values: list[float]) -> Picture:
    scale = max(map(abs, values)) or 1.0
    heights = [round(-value / scale * HEIGHT) for value in values]
    strokes = [f"M{place}.5 {HEIGHT}v{height}" for place, height in enumerate(heights) if height]
    return Picture(
        path="".join(strokes),
        width=len(values),
        least=min(values),
        greatest=max(values),
        zeros=values.count(0),
    )
