"""Scales pictures down: to a thumbnail for a page, and to the size that models read.

Pillow decodes them, by these four formats alone and only up to a number of pixels. A picture that it cannot decode is
shown by its name.
"""

import io
from threading import BoundedSemaphore

from core.errors import InvalidInput
from core.text import gettext_noop as _

# Vendors scale a larger picture down themselves, and count it by its tokens first.
MODEL_PIXELS = 1_568
THUMBNAIL_PIXELS = 480
# A phone's picture has twelve million, the largest camera's fifty. A process decodes two at once, each in up to 200 MB.
MOST_PIXELS = 50_000_000
AT_ONCE = 2
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
QUALITY = 85

UNREADABLE = _("This picture cannot be read: it is damaged, or larger than 50 million pixels.")


_decoding = BoundedSemaphore(AT_ONCE)


def scaled(data: bytes, longest: int) -> tuple[bytes, str]:
    """The picture upright, with its longer side at most so long, and its media type. Raises `InvalidInput`.

    Without what a camera wrote beside it, such as the place. Of a moving picture the first one.
    """
    # Imported here, because it takes a tenth of a second, and few processes and requests need it.
    from PIL import Image, ImageOps

    try:
        with _decoding, Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise InvalidInput(UNREADABLE)
            # A JPEG is decoded at a fraction of its size, if that is enough.
            picture.draft("RGB", (longest, longest))
            is_transparent = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
            # Scaled as it is where its mode allows, so that no second picture of the full size is in memory.
            small: Image.Image = picture
            if picture.mode not in ("RGB", "RGBA", "L"):
                small = picture.convert("RGBA" if is_transparent else "RGB")
            small.thumbnail((longest, longest))
            small = ImageOps.exif_transpose(small).convert("RGBA" if is_transparent else "RGB")
            written = io.BytesIO()
            if is_transparent:
                small.save(written, "PNG")
                return written.getvalue(), "image/png"
            small.save(written, "JPEG", quality=QUALITY)
            return written.getvalue(), "image/jpeg"
    except InvalidInput:
        raise
    except Exception as error:  # a decoder of a broken file raises anything
        raise InvalidInput(UNREADABLE) from error
