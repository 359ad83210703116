//! The Python process.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

/// Ends with the test.
pub(crate) struct OtherSide {
    process: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

impl OtherSide {
    pub(crate) fn start() -> Option<Self> {
        let mut process = Command::new(testkit::python()?)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/other_side.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = process.stdin.take().unwrap();
        let replies = BufReader::new(process.stdout.take().unwrap());
        Some(Self { process, requests, replies })
    }

    /// What it makes of a body.
    pub(crate) fn read(&mut self, format: &str, body: &[u8], how: Value) -> Value {
        let request = json!({ "op": "read", "format": format, "body": base64(body) });
        self.ask(request, how)["value"].take()
    }

    /// What it writes.
    pub(crate) fn write(&mut self, format: &str, value: Value, how: Value) -> Bytes {
        let request = json!({ "op": "write", "format": format, "value": value });
        let reply = self.ask(request, how);
        BASE64_STANDARD.decode(reply["body"].as_str().unwrap()).unwrap().into()
    }

    fn ask(&mut self, mut request: Value, how: Value) -> Value {
        let Value::Object(how) = how else { panic!("{how}") };
        request.as_object_mut().unwrap().extend(how);
        writeln!(self.requests, "{request}").unwrap();
        let mut reply = String::new();
        self.replies.read_line(&mut reply).unwrap();
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert!(reply["error"].is_null(), "{reply}");
        reply
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
