//! The certificate authority: the keys of the issuers, rolls, the key-encryption key, revocation lists, and the
//! certificate of the server itself.

pub mod crl;
pub mod keys;
pub mod rewrap;
pub mod roll;
pub mod server_cert;
