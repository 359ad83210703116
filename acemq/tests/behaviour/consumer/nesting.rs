//! A message whose headers are nested thousands of levels deep.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{HandlerError, Message, Queue};
use testkit::eventually;

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(channel.to_be_bytes());
    bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes.push(0xCE);
    bytes
}

fn method(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let mut payload = class.to_be_bytes().to_vec();
    payload.extend(method.to_be_bytes());
    payload.extend(arguments);
    frame(1, channel, &payload)
}

fn answer(socket: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 7];
    socket.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    let mut payload = vec![0; length + 1];
    socket.read_exact(&mut payload).unwrap();
    payload
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// Publishes what no client library writes: lists within lists, `depth` of them.
fn publish_nested(url: &str, queue: &str, depth: usize) {
    let url = url::Url::parse(url).unwrap();
    let address = (url.host_str().unwrap(), url.port().unwrap_or(5672));
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
    answer(&mut socket);
    let login = format!("\0{}\0{}", url.username(), url.password().unwrap());
    let start_ok = [long(b""), short("PLAIN"), long(login.as_bytes()), short("en_US")].concat();
    socket.write_all(&method(0, 10, 11, &start_ok)).unwrap();
    let tune = answer(&mut socket);
    socket.write_all(&method(0, 10, 31, &[&tune[4..10], &[0, 0]].concat())).unwrap();
    socket.write_all(&method(0, 10, 40, &[short("/"), vec![0, 0]].concat())).unwrap();
    answer(&mut socket);
    socket.write_all(&method(1, 20, 10, &[0])).unwrap();
    answer(&mut socket);
    socket.write_all(&method(1, 85, 10, &[0])).unwrap();
    answer(&mut socket);

    let mut table = short("nested");
    for level in 0..depth {
        table.push(b'A');
        table.extend(u32::try_from(5 * (depth - 1 - level)).unwrap().to_be_bytes());
    }
    table.extend(short("plain"));
    table.push(b'I');
    table.extend(7_i32.to_be_bytes());
    let mut header = 60_u16.to_be_bytes().to_vec();
    header.extend([0, 0]);
    header.extend(2_u64.to_be_bytes());
    header.extend((1_u16 << 15 | 1 << 13).to_be_bytes());
    header.extend(short("application/json"));
    header.extend(long(&table));
    let publish = [vec![0, 0], short(""), short(queue), vec![1]].concat();
    socket.write_all(&method(1, 60, 40, &publish)).unwrap();
    socket.write_all(&frame(2, 1, &header)).unwrap();
    socket.write_all(&frame(3, 1, b"{}")).unwrap();
    assert_eq!(answer(&mut socket)[..4], [0, 60, 0, 80], "the broker takes it");
}

#[tokio::test]
async fn headers_nested_without_end_end_nobody() {
    for (_, url) in testkit::brokers() {
        let mq = acemq::connect(&*url).await.unwrap();
        let queue = testkit::unique("nested");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        for depth in [10, 6_000] {
            publish_nested(&url, &queue, depth);
        }
        let seen = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&seen);
        let consumer = mq
            .consumer::<serde_json::Value>(&*queue)
            .start(move |message: Message<serde_json::Value>| {
                assert_eq!(message.header("plain").unwrap().as_i64(), Some(7));
                count.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, HandlerError>(()) }
            })
            .await
            .unwrap();
        eventually("both were handled", Duration::from_secs(30), async || {
            seen.load(Ordering::SeqCst) == 2
        })
        .await;
        consumer.close().await.unwrap();
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}
