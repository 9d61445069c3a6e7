//! Who asks for what: read off a request's signature, which is not checked itself.

use hyper::HeaderMap;

/// The scope of a signature (AWS Signature Version 4): `Credential=KEY/DATE/REGION/SERVICE/aws4_request`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) access_key: String,
    pub(crate) region: String,
    pub(crate) service: String,
}

impl Scope {
    /// What the instance metadata service is called here.
    pub(crate) const METADATA: &str = "imds";

    /// The scope of what is asked without a signature: of the machine itself.
    pub(crate) fn of_metadata() -> Self {
        Self { access_key: String::new(), region: String::new(), service: Self::METADATA.into() }
    }

    /// Reads the scope; `None` if the request is not signed as AWS's clients sign.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get("authorization")?.to_str().ok()?;
        let rest = text.strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
        let (credential, signature) = rest.split_once(',')?;
        if !signature.contains("SignedHeaders=") || !signature.contains("Signature=") {
            return None;
        }
        let parts: Vec<&str> = credential.trim().split('/').collect();
        let [access_key, _date, region, service, "aws4_request"] = parts[..] else { return None };
        Some(Self { access_key: access_key.into(), region: region.into(), service: service.into() })
    }
}
