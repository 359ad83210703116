//! What has to be true of a run's books, whatever was done to it.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use super::{
    Books,
    holds::{End, Hold, Holds, lapses},
};
use crate::{
    ledger::{Deed, Line},
    role::Role,
};

const CONFIRMED: &str = "CONFIRMED";

/// A rule that is broken, and by which orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Wrong {
    pub(crate) rule: &'static str,
    pub(crate) cases: Vec<String>,
}

/// Checks the books. Nothing wrong is an empty list.
pub(crate) fn check(books: &Books, lease: Duration) -> Vec<Wrong> {
    let relays = Holds::of(books, Role::Relay);
    let consumers = Holds::of(books, Role::Consumer);
    let rules = [
        ("a transaction that committed is in the database", committed_and_gone(books)),
        ("a transaction that was rolled back is not in the database", doomed_and_there(books)),
        ("the orders of a transaction are there together", torn(books)),
        ("every order has its record, and every record its order", unpaired(books)),
        ("every record is marked as published", unpublished(books)),
        ("no record has failed by its own fault", blamed(books)),
        ("every record is at the broker", lost(books)),
        ("nothing else is at the broker", made_up(books)),
        ("the broker has no more copies than were cut off", copies(books, &relays)),
        ("no two relays hold one record, and none that is done", holding(&relays, lease)),
        ("no two consumers hold one order, and none that is done", holding(&consumers, lease)),
        ("a relay that ended in order holds nothing", left_behind(&relays)),
        ("a consumer that ended in order holds nothing", left_behind(&consumers)),
        ("every order has its effect", without_effect(books)),
        ("nothing else has an effect", made_up_effects(books)),
        ("an effect is doubled only where its handler was cut off", effects(books, &consumers)),
        ("every order is confirmed as handled", unconfirmed(books)),
        ("nothing is left in the queues or set aside", left_over(books)),
    ];
    let broken = rules.into_iter().filter(|(_, cases)| !cases.is_empty());
    broken.map(|(rule, cases)| Wrong { rule, cases }).collect()
}

fn transactions(books: &Books, deed: Deed) -> impl Iterator<Item = &Line> {
    let writers = books.lives.iter().filter(|(life, _)| life.role == Role::Writer);
    writers.flat_map(|(_, lines)| lines).filter(move |line| line.deed == deed)
}

fn committed_and_gone(books: &Books) -> Vec<String> {
    let ids = transactions(books, Deed::Committed).flat_map(|line| &line.ids);
    ids.filter(|id| !books.orders.contains(*id)).cloned().collect()
}

fn doomed_and_there(books: &Books) -> Vec<String> {
    let ids = transactions(books, Deed::Doomed).flat_map(|line| &line.ids);
    ids.filter(|id| books.orders.contains(*id)).cloned().collect()
}

fn torn(books: &Books) -> Vec<String> {
    let is_there = |id: &String| books.orders.contains(id);
    let torn = |line: &&Line| line.ids.iter().any(is_there) && !line.ids.iter().all(is_there);
    transactions(books, Deed::Began).filter(torn).map(|line| line.ids.join(" ")).collect()
}

fn unpaired(books: &Books) -> Vec<String> {
    let records: BTreeSet<String> = books.outbox.keys().cloned().collect();
    books.orders.symmetric_difference(&records).cloned().collect()
}

fn unpublished(books: &Books) -> Vec<String> {
    let rows = books.outbox.iter().filter(|(_, row)| !row.is_published);
    rows.map(|(id, _)| id.clone()).collect()
}

fn blamed(books: &Books) -> Vec<String> {
    let rows = books.outbox.iter().filter(|(_, row)| row.attempts > 0);
    rows.map(|(id, row)| format!("{id}: {}", row.last_error)).collect()
}

fn lost(books: &Books) -> Vec<String> {
    books.orders.iter().filter(|id| !books.copies.contains_key(*id)).cloned().collect()
}

fn made_up(books: &Books) -> Vec<String> {
    books.copies.keys().filter(|id| !books.orders.contains(*id)).cloned().collect()
}

/// Each hold publishes once at most. A second one is right where the first was cut off before
/// its mark was known to be there, or its lease ran out.
fn copies(books: &Books, relays: &Holds<'_>) -> Vec<String> {
    let too_many = books.copies.iter().filter_map(|(id, &copies)| {
        let allowed = allowed(relays.on(id), |hold| hold.was_cut_off());
        (copies > allowed).then(|| format!("{id}: {copies} copies, and {allowed} are explained"))
    });
    too_many.collect()
}

/// How often something may have been done that is done once unless it is cut off.
fn allowed(holds: &[Hold<'_>], was_cut_off: impl Fn(&Hold<'_>) -> bool) -> usize {
    let cut_off = holds.iter().filter(|hold| was_cut_off(hold)).count();
    // Whoever did it last is the one who was not, unless that is missing as well.
    (1 + cut_off + lapses(holds)).min(holds.len())
}

fn holding(holds: &Holds<'_>, lease: Duration) -> Vec<String> {
    holds.faults(lease).into_iter().map(|(id, text)| format!("{id}: {text}")).collect()
}

fn left_behind(holds: &Holds<'_>) -> Vec<String> {
    let all = holds.0.iter().flat_map(|(id, holds)| holds.iter().map(move |hold| (id, hold)));
    let left = all.filter(|(_, hold)| hold.end == End::Open && !hold.holder_was_killed);
    left.map(|(id, hold)| format!("{id}: {}", hold.life)).collect()
}

fn without_effect(books: &Books) -> Vec<String> {
    books.orders.iter().filter(|id| !books.effects.contains_key(*id)).cloned().collect()
}

fn made_up_effects(books: &Books) -> Vec<String> {
    books.effects.keys().filter(|id| !books.orders.contains(*id)).cloned().collect()
}

/// A handler whose effect and confirmation are two transactions may be cut off between them, or
/// not know whether its effect is there; then it runs again. Nothing else lets it, and nothing at
/// all where they are one transaction.
fn effects(books: &Books, consumers: &Holds<'_>) -> Vec<String> {
    let too_many = books.effects.iter().filter_map(|(id, &effects)| {
        let allowed = match books.transactional {
            true => 1,
            false => allowed(consumers.on(id), |hold| hold.was_cut_off_in_handler()),
        };
        (effects > allowed).then(|| format!("{id}: {effects} effects, and {allowed} are explained"))
    });
    too_many.collect()
}

fn unconfirmed(books: &Books) -> Vec<String> {
    let missing = books.orders.iter().filter(|id| !books.keys.contains_key(*id)).cloned();
    let claimed = books.keys.iter().filter(|(_, state)| *state != CONFIRMED);
    missing.chain(claimed.map(|(id, state)| format!("{id}: {state}"))).collect()
}

fn left_over(books: &Books) -> Vec<String> {
    let full = books.left_over.iter().filter(|(_, messages)| **messages > 0);
    full.map(|(queue, messages)| format!("{queue}: {messages}")).collect()
}
