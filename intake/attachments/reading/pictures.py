"""Scales a picture down, once, in the process that reads files: to the size that models read, and to a thumbnail."""

import io

from core.text import gettext_noop as _
from intake.attachments.reading.parts import Reading, Unreadable

# A browser shows these by itself and runs nothing in them.
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_UNREADABLE = _("This picture cannot be read: it is damaged, or larger than 50 million pixels.")
_TOO_MANY_SCANS = _("This picture has more scans than a camera writes. Save it anew, and attach that.")


def read_picture(data: bytes) -> Reading:
    """A thumbnail, and the picture for models: upright, and without what a camera wrote beside it, such as the place.

    Of a moving picture the first one. Raises `Unreadable`.
    """
    # The library is loaded in the process of a file, and only for a picture.
    from PIL import Image, ImageOps

    # No coded byte looks like the marker of a scan: after 0xFF there always comes a zero.
    # Each scan of a progressive JPEG goes over all its pixels. A camera writes about ten.
    if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > 100:
        raise Unreadable(_TOO_MANY_SCANS)
    # Vendors scale a larger picture down themselves, and count it by its tokens first.
    for_models, for_pages = 1_568, 480
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as picture:
            # A phone's picture has twelve million, the largest camera's fifty.
            if picture.width * picture.height > 50_000_000:
                raise Unreadable(_UNREADABLE)
            # A JPEG is decoded at a fraction of its size, if that is enough.
            picture.draft("RGB", (for_models, for_models))
            is_transparent = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
            # Scaled as it is where its mode allows, so that no second picture of the full size is in memory.
            small: Image.Image = picture
            if picture.mode not in ("RGB", "RGBA", "L"):
                small = picture.convert("RGBA" if is_transparent else "RGB")
            small.thumbnail((for_models, for_models))
            small = ImageOps.exif_transpose(small).convert("RGBA" if is_transparent else "RGB")
        written = [io.BytesIO(), io.BytesIO()]
        small.save(written[1], "PNG" if is_transparent else "JPEG", quality=85)
        small.thumbnail((for_pages, for_pages))
        small.save(written[0], "PNG" if is_transparent else "JPEG", quality=85)
    except (Unreadable, MemoryError):
        raise
    except Exception as error:  # a decoder of a broken file raises anything
        raise Unreadable(_UNREADABLE) from error
    return Reading([], pictures=[each.getvalue() for each in written])
