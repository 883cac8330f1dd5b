//! What a session with a token does.

use std::collections::BTreeMap;

use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use serde::{Deserialize, Serialize};

use super::TokenSettings;
use super::call::{HsmAnswer, HsmRequest};
use super::error::HsmError;
use super::key::FoundKey;
use super::module::OpenedToken;
use crate::spki::KeyKind;

/// The curves by their names in DER.
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// Why a session did not do what was asked, by what may help.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SessionFault {
    /// Nothing: the token has answered.
    Final(FaultCause),
    /// Nothing now, but another session may see more: an object that another program has made.
    Absent(FaultCause),
    /// A new session.
    Lost(FaultCause),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FaultCause {
    /// What a function of PKCS#11 has answered, both by name.
    Answer {
        answer: String,
        function: String,
    },
    Error(HsmError),
}

impl FaultCause {
    pub fn into_error(self, settings: &TokenSettings) -> HsmError {
        match self {
            Self::Answer { answer, function } => {
                let (module, token) = (settings.module_name(), settings.token.clone());
                HsmError::Device { answer, function, module, token }
            }
            Self::Error(error) => error,
        }
    }
}

impl From<&Error> for FaultCause {
    fn from(error: &Error) -> Self {
        match error {
            Error::Pkcs11(answer, function) => {
                Self::Answer { answer: constant(*answer), function: format!("C_{function:?}") }
            }
            other => Self::Error(HsmError::Unusable(other.to_string())),
        }
    }
}

impl SessionFault {
    pub fn final_error(error: HsmError) -> Self {
        Self::Final(FaultCause::Error(error))
    }

    pub fn into_cause(self) -> FaultCause {
        match self {
            Self::Final(cause) | Self::Absent(cause) | Self::Lost(cause) => cause,
        }
    }
}

impl From<Error> for SessionFault {
    fn from(error: Error) -> Self {
        let cause = FaultCause::from(&error);
        let Error::Pkcs11(answer, _) = error else { return Self::Final(cause) };
        match answer {
            RvError::MechanismInvalid
            | RvError::MechanismParamInvalid
            | RvError::KeyTypeInconsistent
            | RvError::KeyFunctionNotPermitted
            | RvError::KeySizeRange
            | RvError::DataLenRange
            | RvError::TemplateIncomplete
            | RvError::TemplateInconsistent
            | RvError::AttributeValueInvalid
            | RvError::AttributeTypeInvalid
            | RvError::AttributeReadOnly
            | RvError::TokenWriteProtected
            | RvError::FunctionNotSupported
            | RvError::CurveNotSupported => Self::Final(cause),
            _ => Self::Lost(cause),
        }
    }
}

/// The name of an answer in PKCS#11, as `CKR_DEVICE_ERROR`.
pub(super) fn constant(answer: RvError) -> String {
    match answer {
        RvError::VendorDefined(code) | RvError::UnknownErrorCode(code) => format!("CKR 0x{code:08x}"),
        known => {
            let mut name = "CKR".to_owned();
            for letter in format!("{known:?}").chars() {
                if letter.is_ascii_uppercase() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            name
        }
    }
}

/// A session that is logged in.
pub(super) struct TokenSession {
    opened: OpenedToken,
    /// Private keys by label: a look-up costs as much as a signature.
    keys: BTreeMap<String, ObjectHandle>,
}

impl TokenSession {
    pub fn new(opened: OpenedToken) -> Self {
        Self { opened, keys: BTreeMap::new() }
    }

    pub fn close(self) {
        self.opened.close();
    }

    fn session(&self) -> &Session {
        &self.opened.session
    }

    pub fn perform(&mut self, request: &HsmRequest) -> Result<HsmAnswer, SessionFault> {
        match request {
            HsmRequest::Sign { label, digest } => self.sign(label, digest).map(HsmAnswer::Signature),
            HsmRequest::Find { label } => self.find(label).map(|key| HsmAnswer::Key(Box::new(key))),
            HsmRequest::Generate { label } => self.generate(label).map(|key| HsmAnswer::Key(Box::new(key))),
        }
    }

    fn sign(&mut self, label: &str, digest: &[u8]) -> Result<Vec<u8>, SessionFault> {
        let key = match self.keys.get(label) {
            Some(key) => *key,
            None => {
                let key = self.private_key(label)?;
                self.kind(label, key)?;
                self.keys.insert(label.to_owned(), key);
                key
            }
        };
        // Over a digest: not every token hashes.
        Ok(self.session().sign(&Mechanism::Ecdsa, key, digest)?)
    }

    fn private_key(&self, label: &str) -> Result<ObjectHandle, SessionFault> {
        let named = Attribute::Label(label.as_bytes().to_vec());
        let found = self.session().find_objects(&[Attribute::Class(ObjectClass::PRIVATE_KEY), named])?;
        let (token, label) = (self.opened.token.clone(), label.to_owned());
        match found.as_slice() {
            [key] => Ok(*key),
            [] => Err(SessionFault::Absent(FaultCause::Error(HsmError::KeyMissing { token, label }))),
            more => {
                Err(SessionFault::final_error(HsmError::KeyAmbiguous { token, label, count: more.len() }))
            }
        }
    }

    fn kind(&self, label: &str, key: ObjectHandle) -> Result<KeyKind, SessionFault> {
        let other =
            |found: String| SessionFault::final_error(HsmError::KeyKind { label: label.to_owned(), found });
        let mut curve = None;
        for attribute in
            self.session().get_attributes(key, &[AttributeType::KeyType, AttributeType::EcParams])?
        {
            match attribute {
                Attribute::KeyType(kind) if kind != KeyType::EC => {
                    return Err(other(format!("of type {kind}")));
                }
                Attribute::EcParams(params) => curve = Some(params),
                _ => {}
            }
        }
        match curve.as_deref() {
            Some(P256) => Ok(KeyKind::P256),
            Some(P384) => Ok(KeyKind::P384),
            Some(params) => Err(other(format!("on another curve ({})", hex::encode(params)))),
            None => Err(other("without the name of a curve".to_owned())),
        }
    }

    fn find(&self, label: &str) -> Result<FoundKey, SessionFault> {
        let key = self.private_key(label)?;
        let kind = self.kind(label, key)?;
        let (mut id, mut is_extractable, mut points) = (None, false, Vec::new());
        let asked = [AttributeType::Id, AttributeType::Extractable, AttributeType::EcPoint];
        for attribute in self.session().get_attributes(key, &asked)? {
            match attribute {
                Attribute::Id(value) => id = Some(value).filter(|value| !value.is_empty()),
                Attribute::Extractable(value) => is_extractable = value,
                // Where a token has it; most have it with the public key only.
                Attribute::EcPoint(point) => points.push(point),
                _ => {}
            }
        }
        let by_label = Some(Attribute::Label(label.as_bytes().to_vec()));
        for name in [id.map(Attribute::Id), by_label].into_iter().flatten() {
            let public = [Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::KeyType(KeyType::EC), name];
            for object in self.session().find_objects(&public)? {
                points.extend(self.point(object)?);
            }
        }
        let spki = points.iter().find_map(|point| FoundKey::spki(kind, point));
        let missing = || SessionFault::final_error(HsmError::PublicKeyMissing { label: label.to_owned() });
        Ok(FoundKey { label: label.to_owned(), kind, spki: spki.ok_or_else(missing)?, is_extractable })
    }

    fn point(&self, object: ObjectHandle) -> Result<Option<Vec<u8>>, SessionFault> {
        let found = self.session().get_attributes(object, &[AttributeType::EcPoint])?;
        Ok(found.into_iter().find_map(|attribute| match attribute {
            Attribute::EcPoint(point) => Some(point),
            _ => None,
        }))
    }

    /// A P-256 key that the token keeps for itself.
    fn generate(&self, label: &str) -> Result<FoundKey, SessionFault> {
        match self.private_key(label) {
            Err(SessionFault::Absent(_)) => {}
            Ok(_) | Err(SessionFault::Final(_)) => {
                return Err(SessionFault::final_error(HsmError::LabelTaken { label: label.to_owned() }));
            }
            Err(fault) => return Err(fault),
        }
        let mut id = vec![0; 16];
        let drawn = aws_lc_rs::rand::fill(&mut id);
        drawn.map_err(|_| {
            SessionFault::final_error(HsmError::Unusable("the system gave no random bytes".to_owned()))
        })?;
        let names = [Attribute::Token(true), Attribute::Label(label.as_bytes().to_vec()), Attribute::Id(id)];
        let mut public = names.to_vec();
        public.extend([
            Attribute::Private(false),
            Attribute::Verify(true),
            Attribute::EcParams(P256.to_vec()),
        ]);
        let mut private = names.to_vec();
        private.extend([
            Attribute::Private(true),
            Attribute::Sensitive(true),
            Attribute::Extractable(false),
            Attribute::Sign(true),
        ]);
        // What tokens otherwise allow by default.
        let no_other_public = [Attribute::Encrypt(false), Attribute::Wrap(false)];
        let no_other_private =
            [Attribute::Decrypt(false), Attribute::Unwrap(false), Attribute::Derive(false)];
        // The token's objects are written in a session that may write; it shares the login.
        let writing = self.opened.open_to_write()?;
        let made = writing.generate_key_pair(
            &Mechanism::EccKeyPairGen,
            &[public.as_slice(), &no_other_public].concat(),
            &[private.as_slice(), &no_other_private].concat(),
        );
        let (public, private) = match made {
            // Some tokens know these of no EC key, and refuse to be told.
            Err(Error::Pkcs11(
                RvError::AttributeTypeInvalid
                | RvError::AttributeValueInvalid
                | RvError::AttributeReadOnly
                | RvError::TemplateInconsistent,
                _,
            )) => writing.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private)?,
            made => made?,
        };
        let found = self.find(label)?;
        if found.is_extractable {
            let _ = writing.destroy_object(private).and_then(|()| writing.destroy_object(public));
            return Err(SessionFault::final_error(HsmError::Extractable { label: label.to_owned() }));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_named_as_in_the_standard() {
        assert_eq!(constant(RvError::DeviceError), "CKR_DEVICE_ERROR");
        assert_eq!(constant(RvError::PinLenRange), "CKR_PIN_LEN_RANGE");
        assert_eq!(constant(RvError::RandomNoRng), "CKR_RANDOM_NO_RNG");
        assert_eq!(constant(RvError::VendorDefined(0x8000_0001)), "CKR 0x80000001");
        let failed = Error::Pkcs11(RvError::DeviceError, cryptoki::context::Function::Sign);
        let settings = TokenSettings {
            module: "/usr/lib/p11-kit-client.so".into(),
            token: "unit".to_owned(),
            pin: crate::pkcs11::PinSource::Env("PIN".to_owned()),
        };
        let told = FaultCause::from(&failed).into_error(&settings).to_string();
        assert_eq!(told, "the HSM failed: CKR_DEVICE_ERROR (C_Sign, module p11-kit-client.so, token 'unit')");
    }
}
