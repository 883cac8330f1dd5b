//! One typed client for agent and CLI: TLS with pinning, retry with jitter, error decoding.
