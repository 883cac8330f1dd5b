//! Saved contexts: `$XDG_CONFIG_HOME/enlist/contexts.toml`, else in `~/.config`. It names files, never a secret.

use crate::error::{CommandError, Exit};
use crate::private_file::{MAX_BYTES, PrivateFile, check_size, is_trusted, unreadable};
use api::rest::one_or_more::OneOrMore;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const NAME: &str = "contexts.toml";

/// Where a control plane is, and what to come with: the flags of the same names. Paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// One or several, which are tried in order.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub server: OneOrMore,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_pin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that is used when neither flags nor variables say where the control plane is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// The context of this name, or a refusal that lists those there are.
    pub fn get(&self, name: &str) -> Result<&Context, CommandError> {
        self.contexts.get(name).ok_or_else(|| {
            let hint = if self.contexts.is_empty() {
                "there are none; `enlist context add NAME` saves one".to_owned()
            } else {
                let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
                format!("saved are: {}", known.join(", "))
            };
            CommandError::new(Exit::Usage, "context_not_found", format!("there is no context {name}"), hint)
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found: Contexts = toml::from_str(text).map_err(|error| error.to_string())?;
        match &found.current {
            Some(name) if !found.contexts.contains_key(name) => {
                Err(format!("`current` names {name}, which is not there"))
            }
            _ => Ok(found),
        }
    }
}

/// The file, which may be absent.
#[derive(Debug, Clone)]
pub struct ContextsFile(PathBuf);

impl ContextsFile {
    /// None for a user without a home. A relative `XDG_CONFIG_HOME` counts as none, as its specification says.
    pub fn find(variables: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let absolute = |name: &str| variables(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(Self(base.join("enlist").join(NAME)))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn load(&self) -> Result<Contexts, CommandError> {
        // Not a pipe, which would never be opened.
        match std::fs::metadata(&self.0) {
            Ok(found) if !found.is_file() => return Err(self.damaged("is not a regular file")),
            _ => {}
        }
        let mut file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(unreadable(&self.0, &error)),
        };
        let found = file.metadata().map_err(|error| unreadable(&self.0, &error))?;
        if found.mode() & 0o077 != 0 || !is_trusted(found.uid()) {
            return Err(self.exposed());
        }
        let mut text = String::new();
        let read = file.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text);
        read.map_err(|error| self.damaged(&error.to_string()))?;
        check_size(&self.0, text.len()).map_err(|_| self.damaged("is larger than 64 KiB"))?;
        Contexts::parse(&text).map_err(|what| self.damaged(&what))
    }

    /// Changes what is saved: one process at a time, and the file is the old one or the new one, never half of one.
    pub fn change<T>(
        &self,
        how: impl FnOnce(&mut Contexts) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let dir = self.0.parent().unwrap_or(Path::new("/"));
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| CommandError::file(dir, &error))?;
        // Held until it is closed.
        let lock = File::open(dir).map_err(|error| CommandError::file(dir, &error))?;
        lock.lock().map_err(|error| CommandError::file(dir, &error))?;
        let mut contexts = self.load()?;
        let done = how(&mut contexts)?;
        let text =
            toml::to_string(&contexts).map_err(|error| CommandError::fault("toml", error.to_string()))?;
        check_size(&self.0, text.len()).map_err(|_| {
            CommandError::usage("more contexts than fit into 64 KiB", "remove contexts that are not used")
        })?;
        let fresh = self.0.with_extension("toml.new");
        // Of a process that was killed: whoever holds the lock may take it away.
        let _ = std::fs::remove_file(&fresh);
        let mut file = PrivateFile::create(&fresh)?;
        file.write(text.as_bytes())?;
        file.replace(&self.0).map(|()| done)
    }

    fn exposed(&self) -> CommandError {
        let path = self.0.display();
        let message = format!("others than this user may read or write {path}, which says where commands go");
        let hint = format!("look through it, then close it with `chmod 600 {path}`");
        CommandError::new(Exit::Usage, "contexts_exposed", message, hint)
    }

    fn damaged(&self, what: &str) -> CommandError {
        let path = self.0.display();
        let hint = format!("correct the file, or move it away and save the contexts again: {path}");
        CommandError::new(Exit::Usage, "contexts_damaged", format!("{path}: {}", what.trim_end()), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn place(dir: &Path) -> ContextsFile {
        let home = dir.as_os_str().to_owned();
        ContextsFile::find(&|name| (name == "XDG_CONFIG_HOME").then(|| home.clone())).unwrap()
    }

    fn add(contexts: &mut Contexts, name: &str) -> Result<(), CommandError> {
        let context = Context { dir: Some("/d".into()), ..Context::default() };
        contexts.contexts.insert(name.to_owned(), context);
        contexts.current = Some(name.to_owned());
        Ok(())
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_saved_is_read_again_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        assert_eq!(place.load().unwrap(), Contexts::default());
        place.change(|contexts| add(contexts, "one")).unwrap();
        place.change(|contexts| add(contexts, "two")).unwrap();
        let found = place.load().unwrap();
        assert_eq!(found.current.as_deref(), Some("two"));
        assert_eq!(found.contexts.keys().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((mode(place.path()), mode(place.path().parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_file_that_is_open_or_damaged_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        place.change(|contexts| add(contexts, "one")).unwrap();
        for text in ["current = \"none\"", "current = 7", "[contexts.a]\nsever = \"x\"", "\u{0}"] {
            std::fs::write(place.path(), text).unwrap();
            assert_eq!(place.load().unwrap_err().code(), "contexts_damaged", "{text}");
            let refused = place.change(|contexts| add(contexts, "two")).unwrap_err();
            assert_eq!(refused.code(), "contexts_damaged");
            assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);
        }
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(place.load().unwrap_err().code(), "contexts_exposed");
    }

    #[test]
    fn the_place_is_where_configuration_belongs() {
        let find = |variables: &[(&str, &str)]| {
            let lookup =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            ContextsFile::find(&lookup).map(|place| place.path().display().to_string())
        };
        let home = ("HOME", "/home/a");
        assert_eq!(find(&[home]).as_deref(), Some("/home/a/.config/enlist/contexts.toml"));
        let given = find(&[home, ("XDG_CONFIG_HOME", "/c")]);
        assert_eq!(given.as_deref(), Some("/c/enlist/contexts.toml"));
        let relative = find(&[home, ("XDG_CONFIG_HOME", "c")]);
        assert_eq!(relative.as_deref(), Some("/home/a/.config/enlist/contexts.toml"));
        assert_eq!(find(&[]), None);
    }
}
