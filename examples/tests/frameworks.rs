//! Runs the examples of acemq beside a framework.

#![expect(clippy::expect_used, clippy::panic, reason = "what goes wrong here fails the test")]

mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
};

use self::support::example;

/// The web service, which ends with the test.
struct WebShop {
    program: Child,
    address: String,
    said: BufReader<ChildStdout>,
}

impl WebShop {
    fn start() -> Self {
        let mut program = Command::new(example("web_shop"))
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the web service");
        let mut said = BufReader::new(program.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("its address");
        let address = line.trim().strip_prefix("listening on http://").expect("an address");
        let address = address.to_owned();
        Self { program, address, said }
    }

    /// Posts an order and gives the status of the answer.
    fn post(&self, order: &str) -> u16 {
        let mut connection = TcpStream::connect(&self.address).expect("connect");
        write!(
            connection,
            "POST /orders HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{order}",
            self.address,
            order.len()
        )
        .expect("ask");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status in {answer:?}"))
    }

    /// The next line that it prints.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

impl Drop for WebShop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn an_order_of_a_web_service_and_its_event_commit_with_the_request() {
    let mut shop = WebShop::start();
    assert_eq!(shop.post(r#"{"id": "o-1", "item": "a book"}"#), 201);
    assert_eq!(shop.says(), "packing a book for order o-1");
    assert_eq!(shop.post(r#"{"id": "o-1", "item": "a lamp"}"#), 409, "the id is taken");
    assert_eq!(shop.post(r#"{"id": "o-2"}"#), 422, "an item is missing");
    assert_eq!(shop.post(r#"{"id": "o-3", "item": "a chair"}"#), 201);
    // Nothing of the orders between that were refused.
    assert_eq!(shop.says(), "packing a chair for order o-3");
}

#[test]
fn an_event_in_a_transaction_of_sea_orm_commits_and_rolls_back_with_it() {
    let output = Command::new(example("sea_orm_shop")).output().expect("run the example");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 order saved, 1 event published\n");
}
