//! X.509 and SPIFFE: reading requests, signing leaves, the hierarchy, sealing, chain verification.
//!
//! Nothing here knows the registry or opens a socket. Time and serial numbers are arguments; keys and
//! nonces are drawn here, because only here may they exist.
//!
//! - Reading what strangers send: [`pem`], [`csr`], [`verify`], [`svid`], [`describe`], [`pin`], [`proof`].
//! - Signing: [`issuer`] (a CA able to sign), [`leaf`], [`server_cert`], [`replica_cert`], [`hierarchy`], [`ephemeral`]
//!   (a CA in memory), [`sign`] (audit).
//! - Taking back and replacing: [`crl`], [`roll`] (of issuers and roots), [`succession`] (of trust bundles).
//! - Keeping keys: [`seal`] at rest, [`pkcs11`] in an HSM, [`step_ca`] for a provisioner, [`agent_key`] and [`wireguard`] on a host.

pub mod agent_key;
mod certificate;
pub mod crl;
pub mod csr;
mod der;
pub mod describe;
pub mod digest;
pub mod ephemeral;
mod extended_use;
pub mod hierarchy;
pub mod import;
pub mod issuer;
mod kek;
pub mod leaf;
mod new_root;
pub mod overlay_proof;
pub mod pem;
pub mod pin;
pub mod pkcs11;
pub mod proof;
pub mod replica_cert;
pub mod roll;
mod root_list;
pub mod seal;
pub mod server_cert;
pub mod sign;
mod signing_key;
mod spki;
pub mod step_ca;
pub mod succession;
pub mod svid;
pub mod verify;
pub mod wireguard;
mod x509_time;
