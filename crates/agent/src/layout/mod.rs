//! The identity where a document wants it: symbolic links to files of the generation in use, so that the one
//! rename that switches `current` switches them all.
//!
//! Where a document wants another form than the store's own (leaf and intermediates in one file, a SEC1 key,
//! everything for this user alone), that file is written into the generation as well, and is as old or new as
//! the rest of it.

mod link;

use std::io;
use std::path::{Path, PathBuf};

use pki::{describe, pem};
use rustls_pki_types::CertificateDer;

use crate::code::AgentCode;
use crate::fault::Fault;
use crate::store::disk::{PUBLIC, SECRET};
use crate::store::generation::{Generations, Number, Part};
use crate::store::identity::{self, HostIdentity};
use link::{IdentityLink, Look};

/// Leaf and intermediates.
const CERT: &str = "layout-cert.pem";
/// The key in SEC1 form.
const KEY: &str = "layout-key.pem";
/// What verifies the control plane: intermediates, then roots.
const CA: &str = "layout-ca.pem";

/// Names, forms and modes of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Plfm,
    Probectl,
    Taskrun,
    Gpuaas,
}

impl Layout {
    pub const NAMES: &'static [&'static str] = &["plfm", "probectl", "taskrun", "gpuaas"];

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "plfm" => Some(Layout::Plfm),
            "probectl" => Some(Layout::Probectl),
            "taskrun" => Some(Layout::Taskrun),
            "gpuaas" => Some(Layout::Gpuaas),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Layout::Plfm => "plfm",
            Layout::Probectl => "probectl",
            Layout::Taskrun => "taskrun",
            Layout::Gpuaas => "gpuaas",
        }
    }

    /// Certificate, key and CA. 004 names its CA files itself, and they are the operator's.
    fn places(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Layout::Plfm => ("certs/agent.crt", "certs/agent.key", Some("certs/ca.crt")),
            Layout::Probectl => ("cert.pem", "key.pem", Some("ca.pem")),
            Layout::Taskrun => ("certs/worker.crt", "certs/worker.key", Some("certs/ca.crt")),
            Layout::Gpuaas => ("/etc/gpuaas/cert.pem", "/etc/gpuaas/key.pem", None),
        }
    }

    /// What its metrics' names begin with, if the document says so.
    pub fn metrics_prefix(self) -> Option<&'static str> {
        (self == Layout::Gpuaas).then_some("gpuaas_node_agent_")
    }

    /// Whether its hosts have a WireGuard key of their own.
    pub fn has_wireguard(self) -> bool {
        self == Layout::Plfm
    }
}

/// Which files are wanted, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    pub layout: Option<Layout>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    /// What verifies the certificates of nodes, this host's own among them. Files that the operator put there stay.
    pub node_issuers: Vec<PathBuf>,
    /// The CA file that the operator put there for first contact. It stays the operator's.
    pub given: Option<PathBuf>,
}

/// One more file of a generation.
struct Extra {
    name: &'static str,
    text: zeroize::Zeroizing<String>,
}

impl Files {
    /// What a layout leaves open is filled in from it.
    pub fn settled(mut self, dir: &Path) -> Self {
        if let Some(layout) = self.layout {
            let (cert, key, ca) = layout.places();
            self.cert.get_or_insert_with(|| dir.join(cert));
            self.key.get_or_insert_with(|| dir.join(key));
            self.ca = self.ca.or_else(|| ca.map(|ca| dir.join(ca)));
        }
        self
    }

    fn is_probectl(&self) -> bool {
        self.layout == Some(Layout::Probectl)
    }

    /// Every link, and the file of the generation that it leads to.
    fn links(&self, dir: &Path) -> Vec<IdentityLink> {
        let key = if self.is_probectl() { KEY } else { identity::KEY };
        let cert = if self.layout.is_some() { CERT } else { identity::CERT };
        let node_issuers = self.node_issuers.iter().filter(|path| link::is_link(path) || !path.exists());
        let node_issuers = node_issuers.map(|path| (path.clone(), identity::NODE_ISSUERS));
        let wanted = [(&self.key, key), (&self.cert, cert), (&self.ca, CA)];
        let wanted = wanted.into_iter().filter_map(|(path, name)| Some((path.clone()?, name)));
        let wanted = wanted.chain(node_issuers);
        // The operator's own CA file, if that is where it lies, is as good as a link.
        let links = wanted.filter(|(path, _)| Some(path) != self.given.as_ref() || link::is_link(path));
        links.map(|(path, name)| IdentityLink::new(dir, path, name)).collect()
    }

    /// The files that a generation has beside its own for this.
    fn extras(&self, identity: &HostIdentity) -> io::Result<Vec<Extra>> {
        let chain = |all: &[&[CertificateDer<'static>]]| {
            let mut seen: Vec<&[u8]> = Vec::new();
            for der in all.iter().flat_map(|part| part.iter()) {
                if !seen.contains(&der.as_ref()) {
                    seen.push(der);
                }
            }
            zeroize::Zeroizing::new(pem::chain_pem(seen))
        };
        let leaf = std::slice::from_ref(&identity.leaf);
        let mut extras = Vec::new();
        if self.layout.is_some() {
            extras.push(Extra { name: CERT, text: chain(&[leaf, &identity.chain]) });
        }
        if self.ca.is_some() {
            // Some TLS libraries ignore the uses of a CA that they were given as an anchor, so an issuer of nodes alone is not
            // given where the control plane is verified; probectl's document wants the leaf verified by this file too.
            let issuers = identity.chain.iter();
            let issuers = issuers.filter(|ca| self.is_probectl() || describe::may_issue_to_servers(ca));
            let issuers: Vec<CertificateDer<'static>> = issuers.cloned().collect();
            extras.push(Extra { name: CA, text: chain(&[&issuers, &identity.bundle]) });
        }
        if !self.node_issuers.is_empty() && identity.node_issuers.is_empty() {
            // A control plane of an older version does not say them; this one is known.
            let text = chain(&[&identity.chain, &identity.bundle]);
            extras.push(Extra { name: identity::NODE_ISSUERS, text });
        }
        if self.is_probectl() {
            let text = identity.key.to_sec1_pem().map_err(io::Error::other)?;
            extras.push(Extra { name: KEY, text });
        }
        Ok(extras)
    }

    /// Writes a generation with everything that is wanted of it.
    pub fn write(
        &self,
        identity: &HostIdentity,
        generations: &Generations,
        spare: Option<Number>,
    ) -> io::Result<Number> {
        let extras = self.extras(identity)?;
        let open = if self.is_probectl() { SECRET } else { PUBLIC };
        let part = |extra: &'_ Extra| (extra.name, if extra.name == KEY { SECRET } else { open });
        let parts: Vec<Part<'_>> = extras
            .iter()
            .map(|extra| {
                let (name, mode) = part(extra);
                Part { name, bytes: extra.text.as_bytes(), mode }
            })
            .collect();
        identity.write(generations, &parts, spare)
    }

    /// What would be in the way, before a token is spent.
    pub fn check(&self, dir: &Path) -> Result<(), Fault> {
        let mut foreign = Vec::new();
        for link in self.links(dir) {
            match link.look() {
                Ok(Look::Foreign) => foreign.push(link.path.display().to_string()),
                Ok(Look::Right | Look::Missing | Look::Ours) => {}
                Err(error) => return Err(unlinked(&format!("{}: {error}", link.path.display()))),
            }
        }
        if foreign.is_empty() { Ok(()) } else { Err(in_the_way(&foreign)) }
    }

    /// Sees that the generation in use has the files, and that the links lead there. `spare` is a generation
    /// that is not in use yet and stays.
    pub fn fit(&self, dir: &Path, identity: &HostIdentity, spare: Option<Number>) -> Result<(), Fault> {
        let links = self.links(dir);
        let generations = Generations::under(dir);
        let current = generations.current_path();
        if links.iter().any(|link| !current.join(link.name).exists()) {
            let number = self.write(identity, &generations, spare);
            let switched = number.and_then(|number| generations.switch(number, spare));
            switched.map_err(|error| unlinked(&error.to_string()))?;
        }
        let mut foreign = Vec::new();
        for link in links {
            match link.look().and_then(|look| link.make(dir, look)) {
                Ok(true) => {}
                Ok(false) => foreign.push(link.path.display().to_string()),
                Err(error) => return Err(unlinked(&format!("{}: {error}", link.path.display()))),
            }
        }
        if foreign.is_empty() { Ok(()) } else { Err(in_the_way(&foreign)) }
    }
}

fn in_the_way(paths: &[String]) -> Fault {
    Fault::host(
        AgentCode::FileInTheWay,
        format!("files that this agent did not create are in the way: {}", paths.join(", ")),
        "move them away, or set other paths under [files] in agent.toml; then run the command again",
    )
}

fn unlinked(what: &str) -> Fault {
    Fault::host(
        AgentCode::FilesNotLinked,
        format!("the links to the identity could not be created: {what}"),
        "let this user write there, then run the command again; no new token is needed",
    )
}
