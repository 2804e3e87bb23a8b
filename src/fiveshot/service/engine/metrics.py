"""What the service counts, in Prometheus's words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PHOTOS = (1, 2, 4, 8, 16, 32, 64)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one service; each has its own registry, so that several live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fiveshot_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "fiveshot_request_seconds",
            "Time from a request's headers to the end of its answer.",
            ("route",),
            registry=self.registry,
            buckets=SECONDS,
        )
        self.batches = Histogram(
            "fiveshot_batch_photos",
            "Photos of a forward pass.",
            registry=self.registry,
            buckets=PHOTOS,
        )
        self.forward = Histogram(
            "fiveshot_forward_seconds", "Time of a forward pass.", registry=self.registry, buckets=SECONDS
        )
        self.photos = Counter("fiveshot_photos", "Photos learned or looked at.", ("use",), registry=self.registry)
        self.pending = Gauge("fiveshot_pending_photos", "Photos in work.", registry=self.registry)
        self.classes = Gauge("fiveshot_classes", "Classes of the model.", registry=self.registry)
        self.state = Gauge("fiveshot_state", "Changes of the model so far.", registry=self.registry)

    def batch(self, photos: int, seconds: float) -> None:
        """Note a forward pass."""
        self.batches.observe(photos)
        self.forward.observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        text: bytes = generate_latest(self.registry)
        return text
