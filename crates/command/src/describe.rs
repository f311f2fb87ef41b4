//! A short description of a log entry, for an operator who must decide about it.

use bytes::Bytes;

use crate::entry::{Item, Items};
use crate::order::Order;
use crate::table::{keys_of, leaf};
use crate::transaction::lookup_in_log;

/// Maximum bytes of a key that are shown.
const KEY_BYTES_MAX: usize = 32;

/// Returns the command of the entry's item number `nth`, from 0, with the beginning of its first
/// key. For an order, returns the order.
pub fn entry_item(payload: &Bytes, nth: usize) -> String {
    match Order::decode(payload) {
        Ok(Some(order)) => return order.name().to_owned(),
        Ok(None) => {}
        Err(_) => return "an unknown order".to_owned(),
    }
    let Ok(mut items) = Items::decode(payload.clone()) else {
        return "an entry that cannot be read".to_owned();
    };
    let mut last = None;
    for _ in 0..=nth {
        match items.next_item() {
            Ok(Some(item)) => last = Some(item),
            Ok(None) => break,
            Err(_) => return "an item that cannot be read".to_owned(),
        }
    }
    match last {
        None => "an empty entry".to_owned(),
        Some(Item::ExpireDue { slot, .. }) => format!("expiry in slot {slot}"),
        Some(Item::Sweep { slot, .. }) => format!("sweep in slot {slot}"),
        Some(Item::Command { args, .. }) => command(&args),
    }
}

fn command(args: &[Bytes]) -> String {
    let Some(spec) = args.first().and_then(|name| lookup_in_log(name)) else {
        let name = args.first().map_or(String::new(), shown);
        return format!("the unknown command {name}");
    };
    let name = leaf(spec, args).name;
    let key = keys_of(spec, args).next().map(|(key, _)| shown(key));
    key.map_or(name.to_owned(), |key| format!("{name} {key}"))
}

/// Quotes the beginning of a key.
fn shown(key: &Bytes) -> String {
    let cut = &key[..key.len().min(KEY_BYTES_MAX)];
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Builder;

    fn entry(lines: &[&str]) -> Bytes {
        let mut builder = Builder::new();
        for line in lines {
            let args: Vec<Bytes> =
                line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            builder.push(0, false, &args);
        }
        builder.push_sweep(7, 1);
        builder.finish(1, 1)
    }

    #[test]
    fn an_item_is_described_by_command_and_key() {
        let long = format!("GET {}\u{7}", "k".repeat(40));
        let entry = entry(&["SET foo bar", "nosuch x", &long]);
        let cut = format!("get \"{}\"...", "k".repeat(32));
        let expected =
            ["set \"foo\"", "the unknown command \"nosuch\"", &cut, "sweep in slot 7", "sweep in slot 7"];
        for (nth, expected) in expected.into_iter().enumerate() {
            assert_eq!(entry_item(&entry, nth), expected);
        }
        assert_eq!(entry_item(&Order::Skip(3).encode(), 0), "order skip");
        assert_eq!(entry_item(&Bytes::from_static(&[2, 99]), 0), "an unknown order");
        for cut in 0..entry.len() {
            entry_item(&entry.slice(..cut), 2);
        }
    }
}
