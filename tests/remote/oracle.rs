//! What must hold of the host's reading of a link, whatever bytes come: frames in any chunks give
//! the same orders, and orders follow what was sent, once each.

use std::collections::{BTreeMap, BTreeSet};

use labproxy::remote::launches::{Launches, Order};
use labproxy::wire::frame;
use labproxy::wire::link::{ExecId, Refusal, SPEC_MAX, ToHost, WINDOW};

/// The first byte chooses the size of the chunks and whether programs read their input.
pub(crate) fn check(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let reads = choice & 1 == 0;
    let whole = run(&mut std::iter::once(bytes), reads);
    let size = usize::from(choice >> 1).max(1);
    assert_eq!(whole, run(&mut bytes.chunks(size), reads));
}

/// What was told of a launch.
#[derive(Default)]
struct Told {
    stdin: Vec<u8>,
    ended: bool,
    signals: u64,
}

/// All orders, and what ended the link.
fn run(chunks: &mut dyn Iterator<Item = &[u8]>, reads: bool) -> (Vec<String>, String) {
    let mut launches = Launches::default();
    let (mut started, mut forgotten) = (BTreeSet::new(), BTreeSet::new());
    let mut told: BTreeMap<ExecId, Told> = BTreeMap::new();
    let (mut orders, mut inbox) = (Vec::new(), Vec::new());
    for chunk in chunks {
        inbox.extend_from_slice(chunk);
        let mut rest = inbox.as_slice();
        loop {
            let (message, behind) = match frame::split(rest) {
                Ok(Some(parts)) => parts,
                Ok(None) => break,
                Err(error) => return (orders, error.to_string()),
            };
            rest = behind;
            let message = match frame::decode::<ToHost<'_>>(message) {
                Ok(message) => message,
                Err(error) => return (orders, error.to_string()),
            };
            if let ToHost::Attach { execs } = &message {
                for exec in launches.attach(execs) {
                    assert!(forgotten.insert(exec));
                    assert!(execs.iter().all(|progress| progress.exec != exec));
                }
                continue;
            }
            let order = match launches.take(&message) {
                Ok(Some(order)) => order,
                Ok(None) => continue,
                Err(Refusal::Protocol { what }) => return (orders, what),
                Err(other) => panic!("{other:?}"),
            };
            orders.push(format!("{order:?}"));
            follow(&order, &message, &mut told, &mut started, &mut forgotten);
            if let Order::Stdin(exec, _) = order {
                let length = told[&exec].stdin.len() as u64;
                launches.stdin_taken(exec, Some(if reads { length } else { 0 }));
                assert!(reads || length <= WINDOW);
            }
            for exec in told.keys() {
                let spec = launches.heard(*exec).map_or(0, |heard| heard.spec_length);
                assert!(spec <= SPEC_MAX);
            }
        }
        let done = inbox.len() - rest.len();
        inbox.drain(..done);
    }
    (orders, String::new())
}

/// Holds an order against what came before.
fn follow(
    order: &Order<'_>,
    message: &ToHost<'_>,
    told: &mut BTreeMap<ExecId, Told>,
    started: &mut BTreeSet<ExecId>,
    forgotten: &mut BTreeSet<ExecId>,
) {
    match (order, message) {
        (Order::Start(exec, _), _) => {
            assert!(started.insert(*exec) && !forgotten.contains(exec));
        }
        (
            Order::Stdin(exec, bytes),
            ToHost::Stdin {
                offset, bytes: all, ..
            },
        ) => {
            let told = told.entry(*exec).or_default();
            assert!(started.contains(exec) && !forgotten.contains(exec) && !told.ended);
            told.stdin.extend_from_slice(bytes);
            assert_eq!(offset + all.len() as u64, told.stdin.len() as u64);
            assert!(all.ends_with(bytes));
        }
        (Order::StdinEnd(exec, length), _) => {
            let told = told.entry(*exec).or_default();
            assert_eq!(*length, told.stdin.len() as u64);
            assert!(!std::mem::replace(&mut told.ended, true));
        }
        (Order::Signal(exec, _), ToHost::Signal { number, .. }) => {
            let told = told.entry(*exec).or_default();
            assert!(*number > told.signals && started.contains(exec));
            told.signals = *number;
        }
        (Order::Forget(exec), _) => assert!(forgotten.insert(*exec)),
        (
            Order::Repeat(exec)
            | Order::Resize(exec, _)
            | Order::CloseOutput(exec, _)
            | Order::Received(exec, _, _),
            _,
        ) => {
            assert!(started.contains(exec) && !forgotten.contains(exec));
        }
        (Order::Pong(_) | Order::Forward(_) | Order::End(_), _) => {}
        (order, message) => panic!("{order:?} for {message:?}"),
    }
}
