//! The host daemon: obtains, keeps and proves a node's identity.
