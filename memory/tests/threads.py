"""Work that is done at once, as several processes do it: each thread has a connection of its own."""

import threading

from django.db import connections


def at_once(*works):
    """Run them in threads that begin together; returns what each returned or raised."""
    barrier, results = threading.Barrier(len(works)), [None] * len(works)

    def run(index):
        try:
            barrier.wait(20)
            results[index] = works[index]()
        except Exception as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results
