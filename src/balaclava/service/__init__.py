"""Private decisions over HTTP: storage, a writer, endpoints and a dashboard."""
