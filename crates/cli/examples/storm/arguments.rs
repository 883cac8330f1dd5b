//! What the run is told.

use crate::framing::Error;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Enroll, StreamBootConfig, SubscribeConfigUpdates, as pact's agents do.
    Pact,
    /// Enroll, Confirm and Live, as `enlist-agent` does.
    Native,
}

impl Api {
    pub fn name(self) -> &'static str {
        match self {
            Api::Pact => "pact",
            Api::Native => "native",
        }
    }
}

pub struct Arguments {
    pub machines: usize,
    pub api: Api,
    /// The kind of issuer that signs the machines' certificates.
    pub issuer: String,
    /// Bytes of the configuration.
    pub document: usize,
    /// Whether the control plane is killed and started again.
    pub restart: bool,
    /// Be the server of the floor.
    pub bare: bool,
}

impl Arguments {
    pub fn read() -> Result<Self, Error> {
        let mut found = Self {
            machines: 10_000,
            api: Api::Pact,
            issuer: "sealed".to_owned(),
            document: 4096,
            restart: true,
            bare: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--machines" => found.machines = value()?.parse()?,
                "--document" => found.document = value()?.parse::<usize>()?.clamp(64, 200_000),
                "--issuer" => found.issuer = value()?,
                "--no-restart" => found.restart = false,
                "--bare-server" => found.bare = true,
                "--api" => {
                    found.api = match value()?.as_str() {
                        "pact" => Api::Pact,
                        "native" => Api::Native,
                        other => return Err(format!("{other} is neither pact nor native").into()),
                    }
                }
                other => return Err(format!("unknown: {other}").into()),
            }
        }
        Ok(found)
    }
}
