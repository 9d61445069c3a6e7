//! Answers, in the form that each service writes them.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;

/// How a service writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// EC2's: a form, and XML.
    Ec2,
    /// STS's: a form, and XML with another envelope.
    Query,
    /// JSON with the operation in a header.
    Json,
    /// Paths and JSON.
    Rest,
}

/// What an operation gives back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The inside of an XML answer.
    Xml(Xml),
    /// A JSON answer with its status.
    Json(u16, Value),
    /// Bytes with headers.
    Bytes(Vec<(&'static str, String)>, Bytes),
    /// Nothing but a status and headers.
    Headers(u16, Vec<(&'static str, String)>),
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// The EBS direct API's second word for it.
    pub(crate) reason: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        let status = match code {
            "UnauthorizedOperation" => 403,
            "DryRunOperation" => 412,
            "RequestLimitExceeded" | "Unavailable" => 503,
            "AuthFailure" => 401,
            _ => 400,
        };
        Self { status, code: code.into(), message: message.into(), reason: None }
    }

    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn reason(self, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..self }
    }
}

pub(crate) type Answered = Result<Answer, Refusal>;

/// XML, written as it comes.
#[derive(Debug, Default)]
pub(crate) struct Xml(String);

impl Xml {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds an element that holds text.
    pub(crate) fn text(mut self, name: &str, text: impl std::fmt::Display) -> Self {
        let text = text.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.0.push_str(&format!("<{name}>{text}</{name}>"));
        self
    }

    /// Adds an element that holds text, if there is any.
    pub(crate) fn maybe(self, name: &str, text: Option<impl std::fmt::Display>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// Adds an element that holds others.
    pub(crate) fn element(mut self, name: &str, inside: Xml) -> Self {
        self.0.push_str(&format!("<{name}>{}</{name}>", inside.0));
        self
    }

    /// Adds a list in EC2's way: each entry is an `item`.
    pub(crate) fn list(self, name: &str, entries: impl IntoIterator<Item = Xml>) -> Self {
        self.element(name, entries.into_iter().fold(Xml::new(), |all, entry| all.element("item", entry)))
    }
}

/// Writes an answer as the service does.
pub(crate) fn write(protocol: Protocol, operation: &str, request_id: &str, answer: Answered) -> Response<Full<Bytes>> {
    match answer {
        Ok(Answer::Xml(inside)) => xml(200, request_id, &envelope(protocol, operation, request_id, inside)),
        Ok(Answer::Json(status, value)) => json(status, request_id, None, &value),
        Ok(Answer::Bytes(headers, bytes)) => with_headers(Response::new(Full::new(bytes)), request_id, headers),
        Ok(Answer::Headers(status, headers)) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::from_u16(status).expect("a legal status");
            with_headers(response, request_id, headers)
        }
        Err(refusal) => refuse(protocol, request_id, &refusal),
    }
}

fn envelope(protocol: Protocol, operation: &str, request_id: &str, inside: Xml) -> String {
    let Xml(inside) = inside;
    match protocol {
        Protocol::Query => format!(
            "<{operation}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{operation}Result>{inside}</{operation}Result>\
             <ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{operation}Response>"
        ),
        _ => format!(
            "<{operation}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>{request_id}</requestId>{inside}\
             </{operation}Response>"
        ),
    }
}

fn refuse(protocol: Protocol, request_id: &str, refusal: &Refusal) -> Response<Full<Bytes>> {
    let Refusal { status, code, message, reason } = refusal;
    let error = Xml::new().text("Code", code).text("Message", message);
    match protocol {
        Protocol::Ec2 => {
            let inside = Xml::new().element("Errors", Xml::new().element("Error", error)).text("RequestID", request_id);
            xml(*status, request_id, &Xml::new().element("Response", inside).0)
        }
        Protocol::Query => {
            let inside = Xml::new().element("Error", error).text("RequestId", request_id);
            xml(*status, request_id, &Xml::new().element("ErrorResponse", inside).0)
        }
        Protocol::Json => {
            let value = serde_json::json!({ "__type": code, "message": message });
            json(*status, request_id, Some(code), &value)
        }
        Protocol::Rest => {
            let value = match reason {
                Some(reason) => serde_json::json!({ "Message": message, "Reason": reason }),
                None => serde_json::json!({ "message": message }),
            };
            json(*status, request_id, Some(code), &value)
        }
    }
}

fn xml(status: u16, request_id: &str, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}")));
    *response.status_mut() = StatusCode::from_u16(status).expect("a legal status");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/xml;charset=UTF-8"));
    with_headers(response, request_id, [])
}

fn json(status: u16, request_id: &str, error: Option<&str>, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).expect("a legal status");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let error = error.map(|code| ("x-amzn-ErrorType", format!("{code}:http://internal.amazon.com/coral/")));
    with_headers(response, request_id, error)
}

fn with_headers(
    mut response: Response<Full<Bytes>>,
    request_id: &str,
    headers: impl IntoIterator<Item = (&'static str, String)>,
) -> Response<Full<Bytes>> {
    let headers = headers.into_iter().chain([("x-amzn-RequestId", request_id.to_owned())]);
    for (name, value) in headers {
        let name = name.to_ascii_lowercase().parse::<header::HeaderName>().expect("a legal name");
        response.headers_mut().insert(name, HeaderValue::from_str(&value).expect("a legal value"));
    }
    response
}
