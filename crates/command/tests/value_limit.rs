//! No command creates a value longer than 64 MiB, the maximum that a command can carry. Redis's
//! limit differs.

use bytes::Bytes;
use resp::Reply;
use steelyard_command::entry::{self, Builder};
use storage::{MemoryKeyspace, Txn};
use types::SlotRange;

const MIB: usize = 1 << 20;

fn answers(rows: &mut MemoryKeyspace, commands: &[&[&[u8]]]) -> Vec<Reply> {
    let mut builder = Builder::new();
    for command in commands {
        let args: Vec<Bytes> = command.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
        builder.push(0, false, &args);
    }
    let mut txn = Txn::begin(rows, 1).expect("rows are read");
    let replies = entry::apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).expect("it is executed");
    rows.write(txn.finish().0);
    replies.into_iter().flatten().collect()
}

#[test]
fn values_grow_to_64_mib_and_no_further() {
    let mut rows = MemoryKeyspace::default();
    let whole = Reply::Int(64 * MIB as i64);
    let too_long = Reply::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    let first: &[&[&[u8]]] = &[
        &[b"SETRANGE", b"absent", b"67108863", b"ab"],
        &[b"SETRANGE", b"k", b"67108862", b"ab"],
        &[b"APPEND", b"k", b"c"],
        &[b"SETRANGE", b"k", b"67108864", b"c"],
        &[b"STRLEN", b"k"],
        &[b"EXISTS", b"absent"],
    ];
    let expected =
        [too_long.clone(), whole.clone(), too_long.clone(), too_long.clone(), whole, Reply::Int(0)];
    assert_eq!(answers(&mut rows, first), expected);
    let part = vec![b'x'; 40 * MIB];
    let grown = answers(&mut rows, &[&[b"SET", b"a", &part], &[b"APPEND", b"a", &part], &[b"STRLEN", b"a"]]);
    assert_eq!(grown, [Reply::OK, too_long, Reply::Int(40 * MIB as i64)]);
}
