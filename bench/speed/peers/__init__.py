"""One small file per competitor: `make(threads)` gives a `Peer`. A new one is named in `worker.PEERS`."""
