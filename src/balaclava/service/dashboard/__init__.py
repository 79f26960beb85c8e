"""Pages for people: what is running, what is known of it, and what it gave away."""

from balaclava.service.dashboard.routes import router

__all__ = ["router"]
