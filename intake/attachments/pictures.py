"""Scales pictures down: to a thumbnail for a page, and to the size that models read.

Pillow decodes them, by these four formats alone and only up to a number of pixels. A picture that it cannot decode is
shown by its name.
"""

import io
import warnings

from core.errors import InvalidInput
from core.text import gettext_noop as _

# Vendors scale a larger picture down themselves, and count it by its tokens first.
MODEL_PIXELS = 1_568
THUMBNAIL_PIXELS = 480
# A phone's picture has twelve million, the largest camera's fifty. One of a hundred million would need 400 MB.
MOST_PIXELS = 64_000_000
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
QUALITY = 85

UNREADABLE = _("This picture cannot be read: it is damaged, or larger than 64 million pixels.")


def scaled(data: bytes, longest: int) -> tuple[bytes, str]:
    """The picture upright, with its longer side at most so long, and its media type. Raises `InvalidInput`.

    Without what a camera wrote beside it, such as the place. Of a moving picture the first one.
    """
    # Imported here, because it takes a tenth of a second, and few processes and requests need it.
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            warnings.simplefilter("ignore")
            if picture.width * picture.height > MOST_PIXELS:
                raise InvalidInput(UNREADABLE)
            # A JPEG is decoded at a fraction of its size, if that is enough.
            picture.draft("RGB", (longest, longest))
            upright = ImageOps.exif_transpose(picture)
            is_transparent = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
            upright = upright.convert("RGBA" if is_transparent else "RGB")
            upright.thumbnail((longest, longest))
            written = io.BytesIO()
            if is_transparent:
                upright.save(written, "PNG")
                return written.getvalue(), "image/png"
            upright.save(written, "JPEG", quality=QUALITY)
            return written.getvalue(), "image/jpeg"
    except InvalidInput:
        raise
    except Exception as error:  # a decoder of a broken file raises anything
        raise InvalidInput(UNREADABLE) from error
