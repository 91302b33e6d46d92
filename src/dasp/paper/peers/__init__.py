"""Other libraries' methods in the form of `dasp.methods`."""

from dasp.paper.peers.table import PEERS

__all__ = [
    "PEERS",
]
