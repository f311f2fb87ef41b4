//! Targets that need a store. It has no threads and no other stores, and serves many inputs, so
//! that what one input leaves may matter to the next one.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cluster::StoreKey;
use command::{Handler, ServerCommand};
use node::session::{Own, Session};
use resp::{Decoder, Limits, Protocol};
use tokio::runtime::Runtime;

use crate::client::{run_own, run_own_later, Connected};
use crate::connections::ListenerKind;
use crate::fixture::Fixture;
use crate::store_messages::{drop_snapshots, FromStores};
use crate::transport::frame::{self, Frame};
use crate::transport::raft_lane::decode_messages;
use crate::transport::{Inbound, Remote, NO_STORE};

/// Number of inputs that a store serves. No store is left to the end of a test's thread.
const INPUTS_MAX: u32 = if cfg!(test) { 1 } else { 2000 };
/// Time for an answer. Without other threads many never come.
const PATIENCE: Duration = Duration::from_millis(2);

struct Served {
    fixture: Fixture,
    runtime: Runtime,
    inputs: u32,
}

thread_local! {
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

/// Calls `with` with a store.
fn serve(with: impl FnOnce(&Served)) {
    SERVED.with_borrow_mut(|kept| {
        let served = kept.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().expect("a runtime");
            let fixture = {
                let _runtime = runtime.enter();
                Fixture::new()
            };
            Served { fixture, runtime, inputs: 0 }
        });
        with(served);
        served.fixture.told().for_each(drop);
        served.inputs += 1;
        if served.inputs == INPUTS_MAX {
            *kept = None;
        }
    });
}

/// Executes commands on the connection, the store and the cluster. An input is RESP.
pub fn own_commands(input: &[u8]) {
    let mut buffer = BytesMut::from(input);
    let mut decoder = Decoder::new(Limits::default());
    serve(|Served { fixture: Fixture { store, .. }, runtime, .. }| {
        let _runtime = runtime.enter();
        let address = "127.0.0.1:7000".parse().expect("an address");
        let entry = store.clients.open(address, address, usize::MAX).expect("a place");
        let mut context = *Session::<()>::new(Limits::default(), false).context();
        while let (Ok(Some(request)), false) = (decoder.decode(&mut buffer), context.closing) {
            let args = request.args;
            let Ok(spec) = command::resolve(&args) else { continue };
            let Handler::Server(command) = spec.handler else { continue };
            // Names of files are those of the machine.
            let names_file = args.iter().any(|arg| arg.contains(&b'/'));
            if matches!(command, ServerCommand::Shutdown | ServerCommand::Save) || names_file {
                continue;
            }
            let connection =
                &mut Connected { context: &mut context, entry: &entry, kind: ListenerKind::Client };
            let replies = match run_own(store, connection, command, spec, &args) {
                Own::Reply(reply) => vec![reply.into()],
                Own::Several(answers) => answers,
                Own::Later => {
                    let later = run_own_later(store, &entry, command, &args);
                    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, later).await });
                    answer.into_iter().map(node::Answer::from).collect()
                }
            };
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let mut out = BytesMut::new();
                replies.iter().for_each(|reply| reply.encode(protocol, &mut out));
            }
        }
        store.clients.pubsub.leave(&entry.subscriber);
        store.clients.close(entry.id);
    });
}

/// Receives the frames of another store. The first byte names it; one of them asks to join.
pub fn store_requests(input: &[u8]) {
    let Some((&from, bytes)) = input.split_first() else { return };
    let store_id = if from == 0 { NO_STORE } else { u64::from(from % 4) };
    let from = Remote { store: store_id, key: StoreKey([3; 32]) };
    let mut buffer = BytesMut::from(bytes);
    serve(|Served { fixture: Fixture { store, .. }, runtime, .. }| {
        let _runtime = runtime.enter();
        let inbound = Arc::new(FromStores { store: store.clone() });
        while let Ok(Some(frame)) = frame::take(&mut buffer) {
            match frame {
                Frame::Raft(messages) => {
                    if let Ok(mut messages) = decode_messages(messages) {
                        drop_snapshots(store, from.store, &mut messages);
                    }
                }
                Frame::Heartbeat(report) => inbound.heartbeat(from.store, report),
                Frame::Order(order) => inbound.order(from.store, order),
                Frame::Announce(descriptor) => inbound.announce(from.store, descriptor),
                Frame::Request { kind, body, .. } => {
                    let answer = inbound.clone().request(from, kind, body);
                    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await });
                    let _: Option<(u8, Bytes)> = answer.ok();
                }
                Frame::Hello(_)
                | Frame::Response { .. }
                | Frame::Refused(_)
                | Frame::Challenge(_)
                | Frame::Proof(_) => {}
            }
        }
        drop(store.metrics.text());
    });
}
