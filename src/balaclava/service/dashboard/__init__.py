"""The dashboard: HTML pages for experiments, the ledger and API keys."""

from balaclava.service.dashboard.routes import router

__all__ = ["router"]
