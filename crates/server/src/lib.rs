//! The edge: TLS listener, authentication, doors, operator API, issuing, reconcilers.
