"""Other searches to compare with: each peer has the same vectors and is asked the same questions."""

from evals.benchmarks.search.peers.base import Exact, Peer, PeerMissing
from evals.benchmarks.search.peers.lance import Filtered, Indexed
from evals.benchmarks.search.peers.sqlite import AsSpecified, Partitioned

__all__ = ["PEERS", "Exact", "Peer", "PeerMissing"]

PEERS: tuple[type[Peer], ...] = (Exact, AsSpecified, Partitioned, Filtered, Indexed)
