//! Books made by hand, and what the rules say to each way of spoiling them.

use std::time::Duration;

use super::{Books, Holds, OutboxRow, Wrong, check};
use crate::{
    fleet::{Ending, Life},
    role::{Point, Role},
};

/// A second, as the ledgers count.
const LEASE: Duration = Duration::from_micros(1_000_000);

/// Two orders, of which the relay and the consumer that had them first were cut off: the records
/// went out twice and one handler ran twice, as they may then.
fn books() -> Books {
    let mut books = Books::default();
    let mut live = |name: &str, role, ending, ledger: &str| {
        let life = Life { name: name.to_owned(), role, ending };
        let lines = ledger.lines().map(|line| line.trim().parse().unwrap()).collect();
        books.lives.push((life, lines));
    };
    live(
        "writer-1.1",
        Role::Writer,
        Ending::Closed,
        "1 1 began a b
         2 2 committed a b
         3 3 doomed x",
    );
    live(
        "relay-1.1",
        Role::Relay,
        Ending::Killed,
        "100 200 claimed a b
         300200 300300 renewed a b",
    );
    live(
        "relay-2.1",
        Role::Relay,
        Ending::Closed,
        "1300250 1300400 claimed a b
         1300500 1300600 done a b",
    );
    live(
        "consumer-1.1",
        Role::Consumer,
        Ending::Died(Point::BeforeConfirm),
        "100 200 claimed a
         210 210 handling a
         220 220 handled a",
    );
    live(
        "consumer-2.1",
        Role::Consumer,
        Ending::Closed,
        "300 400 claimed b
         410 410 handling b
         420 420 handled b
         430 440 done b
         1000200 1000300 claimed a
         1000310 1000310 handling a
         1000320 1000320 handled a
         1000330 1000340 done a",
    );
    for id in ["a", "b"] {
        books.orders.insert(id.to_owned());
        let row = OutboxRow { is_published: true, attempts: 0, last_error: String::new() };
        books.outbox.insert(id.to_owned(), row);
        books.keys.insert(id.to_owned(), "CONFIRMED".to_owned());
        books.copies.insert(id.to_owned(), 2);
    }
    books.effects.extend([("a".to_owned(), 2), ("b".to_owned(), 1)]);
    books.left_over.insert("work".to_owned(), 0);
    books
}

impl Books {
    /// Puts another line in the place of one, and says whether there was one.
    fn rewrite(&mut self, life: &str, old: &str, new: &str) {
        let (_, lines) = self.lives.iter_mut().find(|(known, _)| known.name == life).unwrap();
        let line = lines.iter_mut().find(|line| line.to_string() == old).unwrap();
        *line = new.parse().unwrap();
    }

    fn end(&mut self, life: &str, ending: Ending) {
        self.lives.iter_mut().find(|(known, _)| known.name == life).unwrap().0.ending = ending;
    }
}

#[test]
fn books_that_add_up_break_no_rule() {
    assert_eq!(check(&books(), LEASE), []);
}

#[test]
fn whatever_is_spoilt_the_rule_and_the_order_are_named() {
    type Spoil = fn(&mut Books);
    let cases: [(&str, &str, Spoil); 22] = [
        ("committed is in the database", "b", |books| {
            books.orders.remove("b");
        }),
        ("rolled back is not in the database", "x", |books| {
            books.orders.insert("x".to_owned());
        }),
        ("there together", "a b", |books| {
            books.orders.remove("b");
        }),
        ("every record its order", "b", |books| {
            books.outbox.remove("b");
        }),
        ("marked as published", "a", |books| {
            books.outbox.get_mut("a").unwrap().is_published = false;
        }),
        ("by its own fault", "a: unroutable", |books| {
            let row = books.outbox.get_mut("a").unwrap();
            (row.attempts, row.last_error) = (1, "unroutable".to_owned());
        }),
        ("every record is at the broker", "a", |books| {
            books.copies.remove("a");
        }),
        ("nothing else is at the broker", "x", |books| {
            books.copies.insert("x".to_owned(), 1);
        }),
        ("more copies", "a: 3 copies, and 2", |books| {
            books.copies.insert("a".to_owned(), 3);
        }),
        // A relay that was not cut off has no excuse.
        ("more copies", "a: 2 copies, and 1", |books| {
            books.lives.retain(|(life, _)| life.name != "relay-1.1");
        }),
        ("hold one record", "a: relay-2.1 got it 999.8ms before", |books| {
            books.rewrite("relay-2.1", "1300250 1300400 claimed a b", "300350 300400 claimed a b");
        }),
        ("hold one record", "b: relay-1.1 was done with it", |books| {
            books.rewrite("relay-1.1", "300200 300300 renewed a b", "300200 300300 done a b");
        }),
        ("a relay that ended in order", "a: relay-1.1", |books| {
            books.end("relay-1.1", Ending::Closed);
        }),
        ("hold one order", "a: consumer-2.1 got it", |books| {
            books.rewrite("consumer-2.1", "1000200 1000300 claimed a", "500 600 claimed a");
        }),
        ("a consumer that ended in order", "a: consumer-1.1", |books| {
            books.end("consumer-1.1", Ending::Closed);
        }),
        ("every order has its effect", "a", |books| {
            books.effects.remove("a");
        }),
        ("nothing else has an effect", "x", |books| {
            books.effects.insert("x".to_owned(), 1);
        }),
        ("an effect is doubled", "b: 2 effects, and 1", |books| {
            books.effects.insert("b".to_owned(), 2);
        }),
        // The first one gave it back before its handler ran.
        ("an effect is doubled", "a: 2 effects, and 1", |books| {
            books.rewrite("consumer-1.1", "210 210 handling a", "210 210 giving-back a");
        }),
        ("confirmed as handled", "a", |books| {
            books.keys.remove("a");
        }),
        ("confirmed as handled", "b: CLAIMED", |books| {
            books.keys.insert("b".to_owned(), "CLAIMED".to_owned());
        }),
        ("left in the queues", "work: 2", |books| {
            books.left_over.insert("work".to_owned(), 2);
        }),
    ];
    for (rule, case, spoil) in cases {
        let mut books = books();
        spoil(&mut books);
        let wrong = check(&books, LEASE);
        let names = |wrong: &Wrong| {
            wrong.rule.contains(rule) && wrong.cases.iter().any(|found| found.starts_with(case))
        };
        assert!(wrong.iter().any(names), "{rule} / {case}: {wrong:?}");
    }
}

#[test]
fn a_lease_that_ran_out_in_living_hands_is_counted_and_excuses_a_copy() {
    let mut books = books();
    books.end("relay-1.1", Ending::Closed);
    books.rewrite("relay-1.1", "300200 300300 renewed a b", "1300500 1300550 done a b");
    let relays = Holds::of(&books, Role::Relay);
    assert_eq!(relays.lapses(), 2);
    assert_eq!(check(&books, LEASE), []);
}

#[test]
fn waits_and_windows_are_counted_from_the_ledgers() {
    let books = books();
    let relays = Holds::of(&books, Role::Relay);
    // From the end of the lease that the last renewal began.
    assert_eq!(relays.longest_wait_after_kill(LEASE), Duration::from_micros(200));
    assert_eq!(Holds::of(&books, Role::Consumer).window(), Duration::from_micros(20));
}
