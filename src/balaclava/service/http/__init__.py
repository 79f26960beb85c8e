"""HTTP: application, routes, payloads, middleware, metrics and the server process."""
