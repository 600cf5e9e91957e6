"""A vector as a picture: one stroke for each value, so that an empty, constant or cut one is seen at a glance."""

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
    """Of this one vector, which its page shows; None before there is one. No text can be read from it by eye."""
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
