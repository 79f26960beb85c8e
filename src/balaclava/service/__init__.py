"""The decision service: private decisions over HTTP, with a dashboard."""
