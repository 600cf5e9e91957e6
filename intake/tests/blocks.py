"""The `blocks` events of a text that arrives in pieces."""

from itertools import count

from intake.markdown.streaming import BlockStream


def changes_of(text, size):
    """As the browser gets them, each piece drawn: the clock goes on by a second whenever it is looked at."""
    seconds = count()
    stream = BlockStream(clock=lambda: float(next(seconds)))
    changes = []
    for at in range(0, len(text), size):
        stream.feed(text[at : at + size])
        while stream.seconds_until_due:
            continue
        changes.append(stream.changes())
    changes.append(stream.finish())
    return [{"from": changed.start, "html": changed.html} for changed in changes if changed]
