//! Undos that are open, and what is known of them.

use super::*;

fn undo() -> Undo {
    Undo {
        key: Arc::from(&b"k"[..]),
        token: Token::from_text("t"),
        until: Moment::from_nanos(1_000),
        heard: None,
        refused: 0,
    }
}

fn silence() -> Answer {
    Box::pin(std::future::pending())
}

#[test]
fn a_key_is_known_for_as_long_as_an_undo_of_it_is_open() {
    let now = Moment::from_nanos(10);
    let mut debts = Debts::default();
    debts.owe(undo(), now);
    assert!(debts.has(b"k") && !debts.has(b"other"));
    assert_eq!(debts.take_owed().len(), 1);
    assert!(!debts.has(b"k"));

    debts.strand(silence(), undo(), now);
    debts.strand(Box::pin(std::future::ready(Ok(Value::Int(1)))), undo(), now);
    assert_eq!(debts.settle(now).answered, 1);
    assert!(debts.has(b"k"), "one is still silent");
    assert_eq!(debts.backups(now).len(), 1);
    assert!(
        !debts.has(b"k") && debts.left() == 0,
        "its copy counts elsewhere"
    );

    assert_eq!(debts.end(now), 1);
    assert!(debts.has(b"k"), "owed to the next connection");
    assert_eq!(debts.resend(now, true, |_| Some(silence())), 1);
    assert!(debts.has(b"k"));
    debts.end(now);
    debts.forget_expired(Moment::from_nanos(1_000));
    assert!(!debts.has(b"k") && debts.is_empty());
}

#[test]
fn what_a_delete_found_is_noted_where_somebody_may_ask() {
    let heard = Heard::default();
    let mut debts = Debts::default();
    let noted = Undo {
        heard: Some(Arc::clone(&heard)),
        ..undo()
    };
    debts.strand(
        Box::pin(std::future::ready(Ok(Value::Int(1)))),
        noted,
        Moment::ZERO,
    );
    assert_eq!(debts.settle_front(), 1);
    assert!(heard.load(Ordering::Acquire));
}
